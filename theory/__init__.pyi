# The names of CONTENTS, for editors and type checkers, which cannot follow an import at first use.
# isort: skip_file

from theory.action import action as action, entropy_terms as entropy_terms
from theory.architecture import Architecture as Architecture, AttentionPaths as AttentionPaths
from theory.bartlett import BartlettCoordinates as BartlettCoordinates
from theory.compression import (
    Triangle as Triangle,
    compress as compress,
    sub_network as sub_network,
)
from theory.energy import LabelEnergy as LabelEnergy, LearningProblem as LearningProblem
from theory.energy_expansion import DenseEnergy as DenseEnergy
from theory.evidence import (
    log_evidence_at_next_order as log_evidence_at_next_order,
    log_evidence_at_saddle as log_evidence_at_saddle,
)
from theory.fluctuations import Fluctuations as Fluctuations, LogPosterior as LogPosterior
from theory.next_order import (
    NextOrder as NextOrder,
    NextOrderStatus as NextOrderStatus,
    solve_next_order as solve_next_order,
)
from theory.observables import (
    centred_kernel as centred_kernel,
    diagonal_only as diagonal_only,
    equal_diagonal as equal_diagonal,
    head_scores as head_scores,
    kernel_alignment as kernel_alignment,
    off_diagonal_share as off_diagonal_share,
    participation_ratio as participation_ratio,
    path_alignment as path_alignment,
)
from theory.order_parameters import OrderParameters as OrderParameters
from theory.path_kernels import (
    FeatureForm as FeatureForm,
    KernelForm as KernelForm,
    NoisyKernel as NoisyKernel,
    SymmetricKernelForm as SymmetricKernelForm,
    attended_inputs as attended_inputs,
    pair_matrices as pair_matrices,
    path_features as path_features,
    path_kernels as path_kernels,
)
from theory.predictor import (
    Predictor as Predictor,
    mean_without as mean_without,
    path_contributions as path_contributions,
    predict as predict,
)
from theory.saddle_point import (
    SaddlePoint as SaddlePoint,
    SaddlePointStatus as SaddlePointStatus,
    solve_saddle_point as solve_saddle_point,
)
from theory.studies.attention_kernel import (
    Mask as Mask,
    Similarity as Similarity,
    attention_kernel as attention_kernel,
    attention_matrix as attention_matrix,
    mask_matrix as mask_matrix,
)
from theory.studies.rank_collapse import (
    Equilibrium as Equilibrium,
    collapse_of_fixed_attention as collapse_of_fixed_attention,
    collapse_of_random_attention as collapse_of_random_attention,
    distance_from_collapse as distance_from_collapse,
    equilibrium as equilibrium,
    rate_of_uniform_averages as rate_of_uniform_averages,
)
from theory.studies.softmax_forms import (
    captured_variance as captured_variance,
    component_alignment as component_alignment,
    component_coefficients as component_coefficients,
    component_values as component_values,
    most_similarity_and_entropy as most_similarity_and_entropy,
    similarity_and_entropy as similarity_and_entropy,
    taylor_features as taylor_features,
    truncated_attention as truncated_attention,
    truncation_bound as truncation_bound,
)
from theory.studies.support_vectors import (
    HeadPoints as HeadPoints,
    SupportVectorAttention as SupportVectorAttention,
    is_one_regression as is_one_regression,
    masked_regressions as masked_regressions,
    regression_of_attention as regression_of_attention,
    scaled_down_points as scaled_down_points,
    standardised_points as standardised_points,
    support_vector_attention as support_vector_attention,
)
from theory.studies.tube_regression import (
    ComplementarityProblem as ComplementarityProblem,
    complementarity_problem as complementarity_problem,
    unknowns_of as unknowns_of,
)
