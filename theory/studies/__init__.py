"""Studies of attention that need no order parameter.

attention_kernel     attention as a normalised kernel, and the masks that it may have
softmax_forms        softmax as a limit of features of finite order, and as a maximiser
support_vectors      softmax attention as support-vector regression
variant_regressions  Attention-BN and Attention-SH as support-vector regressions
complementarity      optimality of the regression as a complementarity problem
kernel_components    attention as projections on kernel principal components
rank_collapse        rank collapse of tokens with depth
"""
