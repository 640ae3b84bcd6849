"""Images of characters, and the one-shot episodes made of them.

drawings          what every source of images becomes
image_source      the drawings that a recipe names
omniglot, image_archive, omniglot_download    Omniglot from its zip files
all_runs          Omniglot's one-shot runs, as episodes
labelled_images   any labelled image array
resize            images of another size
character_splits  which characters are for training, validation, test
episodes          supports and query, drawn with a seed
patches           from the images of an episode to tokens
"""
