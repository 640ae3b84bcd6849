"""Sizes of an episode: images of one side, cut into square patches, each of which is a token."""

SIDE = 32  # pixels of an image
PATCH = 8  # pixels of a patch
GRID = SIDE // PATCH  # rows, and columns, of patches
PATCHES = GRID**2  # of one image
IMAGES = 3  # of one episode
TOKENS = IMAGES * PATCHES
