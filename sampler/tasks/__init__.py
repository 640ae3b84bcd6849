"""Tasks: inputs and labels of a training and a test split, with their attention matrices.

task           the container every task fills, validated once
make           from a recipe to its task
markov_chain   hidden Markov chain classification
hypernetwork   attention that serves two layers of weights
time_series    time series of a hidden oscillation, two channel groups of which one leads
series_archive time series of the UEA archive
arrays         arrays brought by the user
one_shot       one-shot image classification with the attention of a trained model

What markov_chain and time series share:

chosen_heads       names and forms of the heads that a recipe chooses
positions          beginning-of-sequence token and one-hot positions
random_streams     independent random numbers from one seed

What time series are made of:

series_task        from labelled series to a task
series_file        what file formats have in common, and what no file may contain
ts_file, arff_file .ts files; multivariate .arff files

What one_shot is made of:

drawings           drawings of characters, 32 × 32 pixels
image_source       from the settings of a recipe to drawings
omniglot, omniglot_download, all_runs     Omniglot's official files
labelled_images    digits, and images brought by the user
npz_file           .npz files that users bring, here and in `arrays`
image_archive, resize                     images in zip files; antialiased resizing
character_splits   characters for training, validation and test
episodes           two supports and a query
patches            from images to tokens
"""
