"""The statistical-mechanics theory of deep multi-head attention networks, in JAX;
Newton's method takes its derivatives in NumPy, written out by hand (`dense_action`).

Notation (equations on paper | words in code | axes):

    x_0          inputs            [example, token, channel]; D channels
    y            labels            [example, output]; O outputs
    Ω^{l,h}      attention[l-1]    [example, head, key, query]; softmax over keys
    V_0, V_l, a  weights           [N_1, D], [head, N_{l+1}, N_l], [output, N_a]
    σ_0² … σ_a²  variances         prior variances of V_0, V_1 … V_L, a
    N_1 … N_a    widths            hidden widths, readout last
    H_1 … H_L    heads             heads per layer
    𝒯            temperature       likelihood variance; meets K in `noisy_kernel` only
    π            path              one head per layer, h_1 slowest; Π = H_1···H_L paths
    ξ^π(x)       attended          [example, path, channel]
    φ^π(x)       features          σ_0 ξ^π / √(D Π)
    C_{ππ'}      path kernels      φ^π(x)·φ^π'(x')
    U_l = F Fᵀ   order parameters  [p_l, p_l], p_l = H_l···H_L·O, index (h_l … h_L, output)
    K            kernel            Σ U_1 C; never contains the temperature
    A            action            minimised at the saddle point
    m, v         mean, variance    of the predictor f(x)

Source of the theory: Tiberi, Mignacco, Irie, Sompolinsky, arXiv 2405.15926.
"""

from theory.action import action as action
from theory.action import entropy_terms as entropy_terms
from theory.architecture import Architecture as Architecture
from theory.architecture import AttentionPaths as AttentionPaths
from theory.attended_inputs import attended_inputs as attended_inputs
from theory.attended_inputs import pair_matrices as pair_matrices
from theory.attended_inputs import path_features as path_features
from theory.energy import LabelEnergy as LabelEnergy
from theory.energy import LearningProblem as LearningProblem
from theory.energy import sub_network as sub_network
from theory.observables import diagonal_only as diagonal_only
from theory.observables import equal_diagonal as equal_diagonal
from theory.observables import head_scores as head_scores
from theory.observables import kernel_alignment as kernel_alignment
from theory.observables import off_diagonal_share as off_diagonal_share
from theory.observables import participation_ratio as participation_ratio
from theory.observables import path_alignment as path_alignment
from theory.order_parameters import OrderParameters as OrderParameters
from theory.path_kernels import FeatureForm as FeatureForm
from theory.path_kernels import KernelForm as KernelForm
from theory.path_kernels import NoisyKernel as NoisyKernel
from theory.path_kernels import SymmetricKernelForm as SymmetricKernelForm
from theory.path_kernels import path_kernels as path_kernels
from theory.predictor import Predictor as Predictor
from theory.predictor import predict as predict
from theory.saddle_point import SaddlePoint as SaddlePoint
from theory.saddle_point import SaddlePointStatus as SaddlePointStatus
from theory.saddle_point import solve_saddle_point as solve_saddle_point
from theory.studies.attention_kernel import Mask as Mask
from theory.studies.attention_kernel import Similarity as Similarity
from theory.studies.attention_kernel import attention_kernel as attention_kernel
from theory.studies.attention_kernel import attention_matrix as attention_matrix
from theory.studies.attention_kernel import mask_matrix as mask_matrix
from theory.studies.rank_collapse import collapse_of_fixed_attention as collapse_of_fixed_attention
from theory.studies.rank_collapse import (
    collapse_of_random_attention as collapse_of_random_attention,
)
from theory.studies.rank_collapse import distance_from_collapse as distance_from_collapse
from theory.studies.support_vectors import SupportVectorAttention as SupportVectorAttention
from theory.studies.support_vectors import is_one_regression as is_one_regression
from theory.studies.support_vectors import masked_regressions as masked_regressions
from theory.studies.support_vectors import regression_of_attention as regression_of_attention
from theory.studies.support_vectors import support_vector_attention as support_vector_attention
