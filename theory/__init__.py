"""The statistical-mechanics theory of deep multi-head attention networks.

Notation (equations on paper | words in code | axes):

    x_0          inputs            [example, token, channel]; D channels
    y            labels            [example, output]; O outputs
    Ω^{l,h}      attention[l-1]    [example, head, key, query]; softmax over keys
    V_0, V_l, a  weights           [N_1, D], [head, N_{l+1}, N_l], [output, N_a]
    σ_0² … σ_a²  variances         prior variances of V_0, V_1 … V_L, a
    N_1 … N_a    widths            hidden widths, readout last
    H_1 … H_L    heads             heads per layer
    𝒯            temperature       likelihood variance; added to K in `energy` only
    π            path              one head per layer, h_1 slowest; Π = H_1···H_L paths
    ξ^π(x)       attended          [example, path, channel]
    φ^π(x)       features          σ_0 ξ^π / √(D Π)
    C_{ππ'}      path kernels      φ^π(x)·φ^π'(x')
    U_l = F Fᵀ   order parameters  [p_l, p_l], p_l = H_l···H_L·O, index (h_l … h_L, output)
    K            kernel            Σ U_1 C; never contains the temperature
    E            energy            ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y
    A            action            E and the entropy of U_1 … U_a; minimal at the saddle point
    m, v         mean, variance    of the predictor f(x)
    φ            values            function of values
    Q^l          covariance        of z^l over examples and tokens; g_l Q^l that of V_l z^l/√N_l
    d, q         distance, overlap  of Ω, Ω': mean of ½ Σ_s |Ω_st − Ω'_st|, Σ Ω_st Ω'_st / Σ Ω'_st²

Modules in reading order, with their public names: `CONTENTS`. A name is imported at its first use,
so that the sizes of a network (`architecture`) are known without JAX.

Source of the theory: Tiberi, Mignacco, Irie, Sompolinsky, arXiv 2405.15926.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers: the same names as in CONTENTS
    from theory.action_functional import ActionByProducts, DenseAction
    from theory.architecture import Architecture, AttentionPaths
    from theory.attended import attended_inputs, pair_matrices, token_readout
    from theory.attention_regression import (
        HeadPoints,
        attention_kernel,
        attention_matrix,
        regression_of_attention,
    )
    from theory.energy import (
        NoisyKernel,
        TemperatureTooSmall,
        energy_of_columns,
        energy_of_kernel,
        regress,
    )
    from theory.energy_derivatives import DenseEnergy
    from theory.infinite_width import BestTemperature, InfiniteWidth, best_temperature
    from theory.laplace import Fluctuations, LogPosterior
    from theory.learning_problem import (
        LabelEnergy,
        LearningProblem,
        Triangle,
        compress,
        sub_network,
    )
    from theory.leave_one_out import Combinations, LeftOut, LeftOutAtSaddle, left_out_log_density
    from theory.log_evidence import (
        log_evidence_at_leading_order,
        log_evidence_at_next_order,
        log_evidence_at_saddle,
    )
    from theory.next_order import NextOrder, NextOrderStatus, solve_next_order
    from theory.nonlinear_kernels import (
        Kernels,
        NonlinearProblem,
        TokenExamples,
        activation,
        first_moment,
        kernels_at,
        pair_moment,
    )
    from theory.observables import (
        centred_kernel,
        head_scores,
        kernel_alignment,
        off_diagonal_share,
        participation_ratio,
    )
    from theory.overlaps import OrderParameters
    from theory.path_kernels import Features, StoredKernels, make_path_kernels, path_features
    from theory.predictor import Predictor, mean_without, path_contributions, predict
    from theory.saddle_point import SaddlePoint, SaddlePointStatus, solve_saddle_point
    from theory.wishart_chain import BartlettCoordinates, WishartChain

CONTENTS = {
    "architecture": "Architecture AttentionPaths",
    "attended": "attended_inputs pair_matrices token_readout",
    "energy": "energy_of_kernel energy_of_columns NoisyKernel TemperatureTooSmall regress",
    "path_kernels": "Features StoredKernels make_path_kernels path_features",
    "learning_problem": "LearningProblem LabelEnergy Triangle compress sub_network",
    "overlaps": "OrderParameters",
    "wishart_chain": "WishartChain BartlettCoordinates",
    "energy_derivatives": "DenseEnergy",
    "action_functional": "DenseAction ActionByProducts",
    "saddle_point": "solve_saddle_point SaddlePoint SaddlePointStatus",
    "laplace": "LogPosterior Fluctuations",
    "next_order": "solve_next_order NextOrder NextOrderStatus",
    "log_evidence": "log_evidence_at_leading_order log_evidence_at_saddle "
    "log_evidence_at_next_order",
    "predictor": "Predictor predict path_contributions mean_without",
    "leave_one_out": "Combinations LeftOut LeftOutAtSaddle left_out_log_density",
    "infinite_width": "InfiniteWidth BestTemperature best_temperature",
    "nonlinear_kernels": "NonlinearProblem TokenExamples Kernels kernels_at "
    "activation pair_moment first_moment",
    "observables": "head_scores kernel_alignment participation_ratio "
    "centred_kernel off_diagonal_share",
    "attention_regression": "attention_matrix attention_kernel regression_of_attention HeadPoints",
}
_MODULES = {name: module for module, names in CONTENTS.items() for name in names.split()}
__all__ = list(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
