"""Figures, one subject a file: drawings, captions, and alternative texts.

catalogue          the table of figures, and drawing those that apply
theory_against_draws
                   theories against draws, element by element, of U_1 and the predictor
order_parameter    order parameters as coloured matrices
kernel_matrices    kernels between training examples, of pairs of paths, and their alignment
attention          attention that was sampled, and the prior mean
traces             an overview of chains
accuracy           accuracy along a sweep
against_width      theory and exact posterior against width
temperatures       evidence and scores against temperature
"""
