"""The statistical-mechanics theory of deep multi-head attention networks.

Notation (equations on paper | words in code | axes):

    x_0          inputs            [example, token, channel]; D channels
    y            labels            [example, output]; P training examples, O outputs
    L, H_l       heads             layers of attention, heads of layer l
    Ω^{l,h}      attention[l-1]    [example, head, key, query]; softmax over keys
    G            key size          logits are k·q/√G
    W, Z         logit weights     of learned heads: logits x_sᵀ W x_t; Z standard normal
    t*           token readout     [token]
    V_0, V_l, a  weights           [N_1, D], [head, N_{l+1}, N_l], [output, N_a]
    σ_0² … σ_a²  variances         prior variances of V_0, V_1 … V_L, a
    N_1 … N_a    widths            hidden widths, readout last
    z^l          hidden vectors    [unit, token] below layer l
    𝒯            temperature       likelihood variance; added to K in `energy` only
    π            path              one head per layer, h_1 slowest; Π = H_1···H_L paths
    ξ^π(x)       attended          [example, path, channel]
    φ^π(x)       features          σ_0 ξ^π / √(D Π); φ_a those of row a of U_1
    Φ            columns           [example, feature]: K = Φ Φᵀ where no order parameter is sampled
    X = Q R      triangle          features of all examples; y_∥ = Qᵀ y, y_⊥² = |y|² − |y_∥|²
    C_{ππ'}      path kernels      φ^π(x)·φ^π'(x')
    w_l          effective weights  the readout times the values above, [p_l, N_l]
    U_l, p_l     order parameters  w_l w_lᵀ/N_l, p_l = H_l···H_L·O, index (h_l … h_L, output)
    F_l, r_l     factors           U_l = F_l F_lᵀ, [p_l, r_l], r_l = min(N_l, H_l r_{l+1})
    B_l          Bartlett factors  F_l = (1 ⊗ F_{l+1}) B̂_l, B̂_l = σ_l B_l/√N_l
    χ_i, ν, τ_i  chi variables     diagonal of B_l, degrees of freedom, standardised logarithms
    Q_l          directions        [r_l, N_l], orthonormal rows: w_l = √N_l F_l Q_l
    θ            coordinates       of all B_l, or all B̂_l/σ_l in the action; in samplers a point
    ζ            standardised      θ = centre + scale · ζ, the scale a matrix or a diagonal
    q, q_0, γ    proposal, start   densities of θ; tempering by q_0^{1−γ} p(θ, y)^γ
    K            kernel            Σ U_1 C; never contains the temperature; k(x) = K(x, x_μ)
    Λ            Cholesky factor   K + 𝒯 1 = Λ Λᵀ
    α, κ_i       alpha, precision  (K + 𝒯 1)⁻¹ y, diagonal of (K + 𝒯 1)⁻¹
    E            energy            ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y
    A, A_0       action            E and the entropy of U_1 … U_a, and without E; minimum A* at U_1*
    Ψ(θ)         potential         −ln p(θ, y); p(θ) is the prior
    S, d         covariance, drift  (∇²Ψ)⁻¹ at the mode, d_j = ∂_j tr(S ∇²Ψ)
    ΔU_l, Cov    shift, covariance  of U_l, of U_1, about the mode
    J_ab, j_a    products          φ_aᵀ (K + 𝒯 1)⁻¹ φ_b, φ_aᵀ α; J̄, j̄, b their averages over Cov
    m, v         mean, variance    of the predictor f(x)
    λ_i, e_i     eigenvalues       of K, with eigenvectors
    ψ            values            function of values; k_ψ, m_ψ its moments
    Γ^l          covariance        of z^l over examples and tokens at infinite width

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
