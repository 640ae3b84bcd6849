# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes.

from theory.architecture import (Architecture as Architecture, AttentionPaths as AttentionPaths)
from theory.attended import (attended_inputs as attended_inputs, pair_matrices as pair_matrices,
    token_readout as token_readout)
from theory.energy import (energy_of_kernel as energy_of_kernel,
    energy_of_columns as energy_of_columns, NoisyKernel as NoisyKernel,
    TemperatureTooSmall as TemperatureTooSmall, regress as regress)
from theory.path_kernels import (Features as Features, StoredKernels as StoredKernels,
    make_path_kernels as make_path_kernels, path_features as path_features)
from theory.learning_problem import (LearningProblem as LearningProblem,
    LabelEnergy as LabelEnergy, Triangle as Triangle, compress as compress,
    sub_network as sub_network)
from theory.overlaps import (OrderParameters as OrderParameters)
from theory.wishart_chain import (WishartChain as WishartChain,
    BartlettCoordinates as BartlettCoordinates)
from theory.energy_derivatives import (DenseEnergy as DenseEnergy)
from theory.action_functional import (DenseAction as DenseAction,
    ActionByProducts as ActionByProducts)
from theory.saddle_point import (solve_saddle_point as solve_saddle_point,
    SaddlePoint as SaddlePoint, SaddlePointStatus as SaddlePointStatus)
from theory.laplace import (LogPosterior as LogPosterior, Fluctuations as Fluctuations)
from theory.next_order import (solve_next_order as solve_next_order, NextOrder as NextOrder,
    NextOrderStatus as NextOrderStatus)
from theory.log_evidence import (log_evidence_at_leading_order as log_evidence_at_leading_order,
    log_evidence_at_saddle as log_evidence_at_saddle,
    log_evidence_at_next_order as log_evidence_at_next_order)
from theory.predictor import (Predictor as Predictor, predict as predict,
    path_contributions as path_contributions, mean_without as mean_without)
from theory.leave_one_out import (Combinations as Combinations, LeftOut as LeftOut,
    LeftOutAtSaddle as LeftOutAtSaddle, left_out_log_density as left_out_log_density)
from theory.infinite_width import (InfiniteWidth as InfiniteWidth,
    BestTemperature as BestTemperature, best_temperature as best_temperature)
from theory.nonlinear_kernels import (NonlinearProblem as NonlinearProblem,
    TokenExamples as TokenExamples, Kernels as Kernels, kernels_at as kernels_at,
    activation as activation, pair_moment as pair_moment, first_moment as first_moment)
from theory.observables import (head_scores as head_scores,
    kernel_alignment as kernel_alignment, participation_ratio as participation_ratio,
    centred_kernel as centred_kernel, off_diagonal_share as off_diagonal_share)
from theory.attention_regression import (attention_matrix as attention_matrix,
    attention_kernel as attention_kernel, regression_of_attention as regression_of_attention,
    HeadPoints as HeadPoints)
