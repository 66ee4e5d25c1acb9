"""A test is believed once it has been seen to fail: plant each fault in a copy, and expect its test to turn red.

    python tests/planted_faults.py            all faults
    python tests/planted_faults.py -k kappa   those whose name contains "kappa"
    python tests/planted_faults.py --part 2/4 every fourth of them, from the second on: CI shares them out

The copy runs with NUMBA_DISABLE_JIT=1, so nothing is compiled. Every named test must first be green without the fault.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LITERAL = "tests/reference/test_literal.py"
REDUCTIONS = "tests/reference/test_reductions.py"
BY_HAND = "tests/unit/test_mixtures.py"
MIXTURE_LAWS = "tests/laws/test_mixtures.py"
REUSE = "tests/laws/test_mixture_reuse.py"
ALGORITHM_2 = "tests/reference/test_literal_randomised.py"
COIN = "tests/contract/test_randomised_agents.py"
LAKE = "tests/planning/test_frozen_lake.py"
LEAN = "tests/reference/test_lean.py"
LEAN_STATES = "tests/contract/test_lean_states.py"
LIVE = "tests/live"


@dataclass(frozen=True)
class Fault:
    """Replace `old` by `new` in a file under src/tether; `test` must then fail. `times` is how often `old` occurs."""

    name: str
    file: str
    old: str
    new: str
    test: str
    times: int = 1


FAULTS = (
    Fault(
        "drop kappa",
        "learning/scores.py",
        "return (2.0 * rules.horizon / max(smallest_gap, SMALLEST_GAP) + 1.0) * rules.value_radius[step], 0.0",
        "return rules.value_radius[step], 0.0",
        f"{LITERAL}::test_algorithm_1_is_the_same_in_another_shape",
    ),
    Fault(
        "use A_h for A_{h,s}: no conditioning",
        "learning/safe_sets.py",
        "        share = cross[i] * per_share\n        w = np.sqrt(width2[i])\n",
        "        share = 0.0\n        w = np.sqrt(width2[i] + cross[i] * cross[i] * per_share)\n",
        f"{LITERAL}::test_algorithm_1_is_the_same_in_another_shape",
    ),
    Fault(
        "condition the mean but not the width",
        "learning/safe_sets.py",
        "        w = np.sqrt(width2[i])\n",
        "        w = np.sqrt(width2[i] + cross[i] * cross[i] * per_share)\n",
        "tests/unit/test_safe_sets.py",
    ),
    Fault(
        "bonus from the matrix of the step before",
        "learning/backup.py",
        "                tables.vxx[stage, first:last],\n",
        "                tables.vxx[max(stage - 1, 0), first:last],\n",
        f"{LITERAL}::test_algorithm_1_is_the_same_in_another_shape",
    ),
    Fault(
        "weights from the matrix of the first step",
        "learning/backup.py",
        "whiten(memory.value.factor[stage], moment)\n    unwhiten(memory.value.factor[stage], moment)",
        "whiten(memory.value.factor[0], moment)\n    unwhiten(memory.value.factor[0], moment)",
        f"{LITERAL}::test_algorithm_1_is_the_same_in_another_shape",
    ),
    Fault(
        "every step reads the data of the first",
        "learning/backup.py",
        "        stage = step if stages > 1 else 0\n        prepare_step(",
        "        stage = 0\n        prepare_step(",
        "tests/unit/test_agent.py::test_each_stage_reads_its_own_data",
    ),
    Fault(
        "values of this step instead of the next",
        "learning/backup.py",
        "target_moment(memory, stage, plan.values[step + 1], slots)",
        "target_moment(memory, stage, plan.values[step], slots)",
        "tests/unit/test_agent.py::test_values_flow_backwards_from_the_next_state",
    ),
    Fault(
        "clip the scores",
        "learning/scores.py",
        "best, best_score = best_ray(value_0 + norm_scale * np.sqrt(v00), length, score)",
        "best, best_score = best_ray(min(value_0 + norm_scale * np.sqrt(v00), float(rules.horizon)), length, "
        "np.minimum(score, float(rules.horizon)))",
        f"{LITERAL}::test_algorithm_1_is_the_same_in_another_shape",
    ),
    Fault(
        "clip every value at H",
        "learning/backup.py",
        "else float(rules.horizon - step)",
        "else float(rules.horizon)",
        "tests/unit/test_scores.py::test_other_values_are_clipped_at_the_steps_left",
    ),
    Fault(
        "flip <=: a bound equal to the threshold is refused",
        "learning/safe_sets.py",
        "upper <= threshold",
        "upper < threshold",
        "tests/unit/test_safe_sets.py",
        times=2,
    ),
    Fault(
        "flip <=: a bound over the threshold is accepted",
        "learning/scores.py",
        "if not chosen[j] <= rules.threshold[j]:",
        "if chosen[j] <= -rules.threshold[j]:",
        "tests/unit/test_scores.py::test_a_step_that_one_constraint_refuses_falls_back_with_sound_evidence",
    ),
    Fault(
        "swap two streams: noise from the transitions' stream",
        "world/linear_mdp.py",
        "normal = streams.noise.standard_normal(len(costs))",
        "normal = streams.transitions.standard_normal(len(costs))",
        "tests/unit/test_agent.py::test_noise_and_transitions_come_from_their_own_streams",
    ),
    Fault(
        "swap two streams: the compiled run draws states from the noise",
        "experiments/simulate.py",
        "uniforms = streams.transitions.random(",
        "uniforms = streams.noise.random(",
        f"{REDUCTIONS}::test_a_compiled_run_equals_the_stepwise_run_bit_for_bit[default-star]",
    ),
    Fault(
        "forget the union over H",
        "agents/slucb_qvi.py",
        "events=stages * m / problem.confidence",
        "events=m / problem.confidence",
        "tests/unit/test_confidence.py::test_the_union_is_over_steps_and_constraints",
    ),
    Fault(
        "forget the union over the grid of mixtures",
        "learning/statistics.py",
        "events = rules.events * (1 + len(GRID))",
        "events = rules.events * 1.0",
        "tests/laws/test_radii.py::test_the_smallest_radius_is_the_smallest_of_its_certified_sets",
    ),
    Fault(
        "forget the ridge's bias",
        "learning/confidence.py",
        " + ridge * gamma_norm * gamma_norm)",
        ")",
        "tests/unit/test_confidence.py::test_the_mixture_radius_has_both_parts_under_one_root",
    ),
    Fault(
        "an old spectrum is taken for the new one",
        "learning/statistics.py",
        "grown = memory.cost.grid_log_det[stage, j] + lag",
        "grown = memory.cost.grid_log_det[stage, j] + 0.0 * lag",
        "tests/laws/test_radii.py::test_a_lagging_spectrum_never_makes_the_radius_too_small",
    ),
    Fault(
        "play the optimistic length",
        "learning/scores.py",
        "    return best, length[best], best_score, BEST\n",
        "    return best, optimistic[best], best_score, BEST\n",
        "tests/unit/test_scores.py::test_directional_scores_the_hoped_length_and_plays_the_certified_one",
    ),
    Fault(
        "hope with the certified length",
        "learning/scores.py",
        "score_rays(value_0, value, optimistic, width,",
        "score_rays(value_0, value, length, width,",
        f"{LITERAL}::test_each_explorer_chooses_what_its_definition_chooses[directional]",
    ),
    Fault(
        "a missing cost enters the regression",
        "learning/statistics.py",
        "if cost_is_known and rules.conditioning != EXACT:",
        "if rules.conditioning != EXACT:",
        f"{LITERAL}::test_unmeasured_costs_are_left_out_of_the_cost_regression_only",
    ),
    Fault(
        "NaN counts as safe",
        "learning/safe_sets.py",
        "        # NaN and negative steps fail the comparison and give 0; `min` alone would let NaN through.\n"
        "        length[i] = (step if step < length[i] else length[i]) if step > 0.0 else 0.0\n",
        "        length[i] = 0.0 if step <= 0.0 else (step if step < length[i] else length[i])\n",
        "tests/laws/test_nan.py::test_a_nan_of_one_candidate_leaves_it_without_length_and_the_others_untouched",
    ),
    Fault(
        "a duplicate outcome is accepted",
        "agents/least_squares.py",
        "        check_decision(t, self._open)\n",
        "",
        "tests/unit/test_agent.py::test_an_outcome_is_counted_once",
    ),
    Fault(
        "a NaN cost is accepted",
        "agents/checks.py",
        "numbers.size != m or not np.isfinite(numbers).all():",
        "numbers.size != m:",
        "tests/unit/test_agent.py::test_a_bad_outcome_is_refused_and_changes_nothing",
    ),
    Fault(
        "sign of the share correction",
        "learning/safe_sets.py",
        "m = mean[i] - share * residual",
        "m = mean[i] + share * residual",
        "tests/unit/test_safe_sets.py::test_a_ray_over_the_threshold_is_cut_where_its_bound_meets_it",
    ),
    Fault(
        "sign of the radius reduction",
        "learning/safe_sets.py",
        "np.sqrt(radius * radius - residual * residual / g00)",
        "np.sqrt(radius * radius + residual * residual / g00)",
        "tests/unit/test_safe_sets.py::test_a_states_own_radius_follows_from_pythagoras",
    ),
    Fault(
        "no alarm on a contradicted safe cost",
        "learning/scores.py",
        "            trouble = ALARM\n",
        "            radius = plain_radius\n",
        "tests/laws/test_choices.py::test_a_safe_cost_that_contradicts_the_data_raises_the_alarm_and_plays_safe",
    ),
    Fault(
        "the table update skips g00",
        "learning/tables.py",
        "tables.g00[stage, slot] = g00 - along * per_scale",
        "tables.g00[stage, slot] = g00",
        "tests/laws/test_tables.py::test_tables_after_any_updates_are_the_direct_forms",
    ),
    Fault(
        "the table update forgets the share",
        "learning/tables.py",
        "residual = product[i] - cross[i] * per_share",
        "residual = product[i]",
        "tests/laws/test_tables.py::test_tables_after_any_updates_are_the_direct_forms",
    ),
    Fault(
        "owed updates are forgotten",
        "learning/tables.py",
        "    elif owed > 0:\n",
        "    elif owed > 2:\n",
        "tests/unit/test_tables.py::test_one_observation_of_the_safe_feature_leaves_the_width_and_halves_the_rest",
    ),
    Fault(
        "widths are not rounded upwards",
        "learning/safe_sets.py",
        "        w += ROUNDING * (w + abs(share) * root)\n",
        "",
        "tests/laws/test_tables.py::test_a_width_with_its_allowance_is_never_below_the_exact_width",
    ),
    Fault(
        "lengths are rounded outwards",
        "learning/safe_sets.py",
        "INWARD = 1.0 - 1e-15",
        "INWARD = 1.0 + 1e-6",
        "tests/laws/test_lengths.py::test_the_cost_bound_at_the_certified_length_is_never_over_the_threshold",
    ),
    Fault(
        "a tie goes to the ray",
        "learning/scores.py",
        "if score[i] > best_score and length[i] > 0.0:",
        "if score[i] >= best_score and length[i] > 0.0:",
        "tests/unit/test_scores.py::test_a_tie_goes_to_the_safe_action_and_then_to_the_first_ray",
    ),
    Fault(
        "only the first constraint counts",
        "learning/scores.py",
        "    for j in range(constraints):\n        limit_lengths(",
        "    for j in range(1):\n        limit_lengths(",
        f"{LITERAL}::test_two_constraints_cut_every_ray_at_the_nearer_one",
    ),
    Fault(
        "the certified bonus ignores the steps left",
        "learning/scores.py",
        "needed = 2.0 * (rules.horizon - step) * facts[1, j]",
        "needed = 2.0 * rules.horizon * facts[1, j]",
        "tests/unit/test_scores.py::test_the_certified_bonus_charges_the_width_with_the_steps_left",
    ),
    Fault(
        "the cross term enters the norm once",
        "learning/scores.py",
        "norm2 = rest * rest * v00 + 2.0 * a * rest * v0x[i] + a * a * vxx[i]",
        "norm2 = rest * rest * v00 + a * rest * v0x[i] + a * a * vxx[i]",
        "tests/unit/test_scores.py::test_the_cross_term_enters_the_norm_twice",
    ),
    Fault(
        "hope of an unknown cost is pessimistic",
        "learning/safe_sets.py",
        "cross[i], gxx, -radius, threshold)",
        "cross[i], gxx, radius, threshold)",
        f"{LITERAL}::test_unknown_safe_costs_give_the_unconditioned_set[adaptive]",
    ),
    Fault(
        "the smaller root of the quadratic",
        "learning/safe_sets.py",
        "                    best = max(best, step)\n",
        "                    best = step if best == 0.0 else min(best, step)\n",
        "tests/unit/test_safe_sets.py::test_a_negative_radius_gives_the_optimistic_step",
    ),
    Fault(
        "the known part of gamma is forgotten",
        "learning/statistics.py",
        "gamma_hat[j, k] += estimate[k]",
        "gamma_hat[j, k] = estimate[k]",
        "tests/laws/test_conditioning.py::test_conditioning_on_all_facts_is_generic_gaussian_conditioning",
    ),
    Fault(
        "the warm-up ends too soon",
        "learning/confidence.py",
        "mean + 6.0 * noise * sqrt(log(episodes) / rounds)",
        "mean + 2.0 * noise * sqrt(log(episodes) / rounds)",
        "tests/unit/test_warmup.py::test_the_safe_action_is_played_until_the_rule_passes",
    ),
    Fault(
        "the warm-up's gap is not conservative",
        "learning/confidence.py",
        "return 4.0 * noise * sqrt(log(episodes) / rounds)",
        "return 6.0 * noise * sqrt(log(episodes) / rounds)",
        "tests/laws/test_radii.py::test_the_warm_ups_gap_is_conservative_once_it_has_passed",
    ),
    Fault(
        "a compiled run replans at other times",
        "experiments/simulate.py",
        "if memory.cost.log_det[stage] - planned_log_det[0, stage] > np.log(2.0):",
        "if memory.cost.log_det[stage] - planned_log_det[0, stage] > np.log(3.0):",
        f"{REDUCTIONS}::test_a_compiled_run_equals_the_stepwise_run_bit_for_bit[adaptive, on doubling-star]",
    ),
    Fault(
        "plans are not rare",
        "agents/least_squares.py",
        "return bool((self._log_dets() - self.planned_log_det > log(2.0)).any())",
        "return bool((self._log_dets() - self.planned_log_det > 0.0).any())",
        "tests/laws/test_choices.py::test_plans_on_doubling_are_logarithmically_few",
    ),
    Fault(
        "the factor misses its rotation",
        "learning/ridge.py",
        "            rest[i] = cosine * other - sine * ",
        "            rest[i] = cosine * other + sine * ",
        "tests/laws/test_conditioning.py::test_the_factor_after_rank_one_updates_is_the_factor_of_the_sum",
    ),
    Fault(
        "large triangles: the rows below are added",
        "learning/ridge.py",
        "add_rows(factor, begin, end, end, x, -1.0, x[end:])",
        "add_rows(factor, begin, end, end, x, 1.0, x[end:])",
        "tests/unit/test_ridge.py::test_large_triangles_are_solved_like_small_ones",
    ),
    Fault(
        "mixtures: sign of the width in the rise",
        "learning/mixtures.py",
        "return total + radius * width_of(joint, x)",
        "return total - radius * width_of(joint, x)",
        f"{BY_HAND}::test_the_rise_adds_the_radius_times_the_width",
    ),
    Fault(
        "mixtures: widths are not rounded up",
        "learning/mixtures.py",
        "PRODUCT_ROUNDING = 1e-13",
        "PRODUCT_ROUNDING = 0.0",
        f"{MIXTURE_LAWS}::test_residuals_that_nearly_cancel_keep_the_width_that_is_left",
    ),
    Fault(
        "mixtures: scale_back is forgotten",
        "learning/mixture_search.py",
        "    scale_back(rise, joint, radius, slack, x)\n    return inner_product",
        "    return inner_product",
        f"{MIXTURE_LAWS}::test_the_best_mixture_is_exactly_feasible_and_its_bound_is_not_below_its_value",
    ),
    Fault(
        "mixtures: scaled outwards",
        "learning/mixtures.py",
        "INWARD = 1.0 - 1e-14",
        "INWARD = 1.0 + 1e-9",
        f"{MIXTURE_LAWS}::test_whatever_is_scaled_back_is_a_certified_sub_distribution",
    ),
    Fault(
        "mixtures: the cap is forgotten",
        "learning/mixtures.py",
        "factor = 1.0 if total <= (1.0 if actions == 1 else INWARD) else INWARD / total",
        "factor = 1.0",
        f"{BY_HAND}::TestScaleBack::test_the_cap_holds_for_several_actions",
    ),
    Fault(
        "mixtures: NaN is scaled like a number",
        "learning/mixtures.py",
        "if not (clean and factor > 0.0 and needed > -np.inf and slack > 0.0):",
        "if not (factor > 0.0 and slack > 0.0):",
        f"{BY_HAND}::TestScaleBack::test_a_number_that_is_not_finite_certifies_nothing",
    ),
    Fault(
        "mixtures: the linear program forgets pairs",
        "learning/mixtures.py",
        "        if slope[i] < slack:\n",
        "        if slope[i] < -slack:\n",
        f"{BY_HAND}::TestLinearProgram::test_two_actions_share_the_slack",
    ),
    Fault(
        "mixtures: the subgradient forgets the radius",
        "learning/mixtures.py",
        "per_width = radius / np.sqrt(square) if square > 0.0 else 0.0",
        "per_width = 1.0 / np.sqrt(square) if square > 0.0 else 0.0",
        f"{BY_HAND}::test_a_subgradient_of_the_rise",
    ),
    Fault(
        "mixtures: the certificate is the value itself",
        "learning/mixture_search.py",
        "        bound = min(bound, found)\n",
        "        bound = min(bound, value)\n",
        f"{MIXTURE_LAWS}::test_no_feasible_mixture_beats_the_bound",
    ),
    Fault(
        "mixtures: the cap binds everywhere",
        "learning/mixture_supports.py",
        "if not (0.0 < scale < np.inf and total <= 1.0):",
        "if True:",
        f"{BY_HAND}::TestBestMixture::test_stationary_points_on_a_support_are_the_hand_made_ones",
    ),
    Fault(
        "mixtures: the cap binds nowhere",
        "learning/mixture_supports.py",
        "if not (0.0 < scale < np.inf and total <= 1.0):",
        "if not 0.0 < scale < np.inf:",
        f"{BY_HAND}::TestBestMixture::test_stationary_points_on_a_support_are_the_hand_made_ones",
    ),
    Fault(
        "mixtures: only supports of two are tried",
        "learning/mixture_search.py",
        "for wanted in range(2, size + 1):",
        "for wanted in range(2, 3):",
        f"{BY_HAND}::TestBestMixture::test_three_independent_actions_share_it_too",
    ),
    Fault(
        "mixtures: a growing support stops at once",
        "learning/mixture_search.py",
        "    for _ in range(4 * size):\n",
        "    for _ in range(1):\n",
        f"{BY_HAND}::TestBestMixture::test_six_independent_actions_share_it_too",
    ),
    Fault(
        "mixtures: the products keep the row of a_0",
        "learning/mixture_choice.py",
        "    skipped = -1 if tables.is_star[slot] else tables.baseline_row[slot]\n",
        "    skipped = -1\n",
        f"{BY_HAND}::TestTheWholeDecision::test_rows_keep_their_place_around_the_safe_action[0]",
    ),
    Fault(
        "mixtures: the residual term is dropped",
        "learning/mixture_choice.py",
        "mean = projected[1 + j, row] - share * facts[0, j]",
        "mean = projected[1 + j, row]",
        f"{BY_HAND}::TestTheWholeDecision::test_a_share_of_the_safe_feature_costs_its_share",
    ),
    Fault(
        "mixtures: products without conditioning",
        "learning/forms.py",
        "            residual[i] = x[k, i] - cross[i] * part\n",
        "            residual[i] = x[k, i]\n",
        f"{BY_HAND}::TestTheWholeDecision::test_a_share_of_the_safe_feature_costs_its_share",
    ),
    Fault(
        "mixtures: a pair under the cap takes the other root",
        "learning/mixture_supports.py",
        "(gain[first] - gain[second]) * steepness > 0.0",
        "(gain[first] - gain[second]) * steepness < 0.0",
        f"{BY_HAND}::TestBestMixture::test_a_pair_under_the_cap_stops_on_the_side_where_the_gain_grows",
    ),
    Fault(
        "mixtures: kept without a certificate",
        "learning/mixture_reuse.py",
        "if not (bound - value <= CLOSED * largest and np.isfinite(score)):",
        "if not np.isfinite(score):",
        f"{REUSE}::test_every_planned_mixture_is_the_best_of_its_own_step",
    ),
    Fault(
        "mixtures: kept from any step",
        "learning/mixture_reuse.py",
        "if sheet.held[slot] != step + 1:",
        "if sheet.held[slot] < 0:",
        f"{REUSE}::test_nothing_is_kept_from_an_older_step_or_without_a_closed_certificate",
    ),
    Fault(
        "mixtures: kept although the constraint moved",
        "learning/mixture_choice.py",
        "    sheet.held[slot], sheet.trouble[slot] = -1, BEST\n",
        "    sheet.trouble[slot] = BEST\n",
        f"{REUSE}::test_mixtures_are_kept_while_the_constraint_stays_and_never_when_it_moves",
    ),
    Fault(
        "mixtures: the safe cost of the step after is taken for this one's",
        "learning/mixture_choice.py",
        "if not (carried and same_baseline_cost(tables, step, slot)):",
        "if not carried:",
        f"{REUSE}::test_every_planned_bound_is_that_of_its_own_step_and_under_the_threshold",
    ),
    Fault(
        "mixtures: flip <= where one action is obvious",
        "learning/randomised.py",
        "certified = certified and -np.inf < upper <= (1.0 - 1e-12) * sheet.facts[slot, 2, j]",
        "certified = certified and upper >= (1.0 - 1e-12) * sheet.facts[slot, 2, j]",
        f"{BY_HAND}::TestTheWholeDecision::test_a_feature_orthogonal_to_the_safe_one",
    ),
    Fault(
        "mixtures: only the first constraint is checked",
        "learning/mixture_choice.py",
        "        for other in range(constraints):\n",
        "        for other in range(1):\n",
        f"{MIXTURE_LAWS}::test_with_several_constraints_what_counts_as_solved_satisfies_all",
    ),
    Fault(
        "mixtures: hope is pessimistic",
        "learning/mixture_choice.py",
        "lower[i] = rise[j, i] - facts[1, j] * width[i]",
        "lower[i] = rise[j, i] + facts[1, j] * width[i]",
        f"{BY_HAND}::TestHope::test_the_hoped_value_and_the_certified_share",
    ),
    Fault(
        "mixtures: hope is played uncut",
        "learning/mixture_choice.py",
        "        scale_back(rise[j], joint, facts[1, j], facts[2, j], x)\n",
        "        pass\n",
        f"{BY_HAND}::TestHope::test_every_constraint_cuts",
    ),
    Fault(
        "mixtures: rows slip around a_0",
        "learning/randomised.py",
        "        if row - first == tables.baseline_row[slot]:\n            plan.mixture[step, row] = 1.0 - total\n",
        "        if row == first:\n            plan.mixture[step, row] = 1.0 - total\n",
        f"{BY_HAND}::TestTheWholeDecision::test_rows_keep_their_place_around_the_safe_action",
    ),
    Fault(
        "mixtures: rows slip around a_0 where one action is obvious",
        "learning/randomised.py",
        "chosen = best if best >= 0 else safe_row",
        "chosen = best - 1 if best >= 0 else safe_row",
        f"{BY_HAND}::TestTheWholeDecision::test_a_certified_action_is_played_outright",
    ),
    Fault(
        "mixtures: values are not clipped",
        "learning/randomised.py",
        "return min(max(score, 0.0), limit) if score == score else limit",
        "return score",
        f"{ALGORITHM_2}::test_algorithm_2_chooses_the_mixtures_of_its_transcription[4-0.1-0.2-None]",
    ),
    Fault(
        "mixtures: a tuned kappa is ignored",
        "learning/scores.py",
        "return rules.kappa * rules.value_radius[step], 0.0",
        "return (2.0 * rules.horizon / max(smallest_gap, SMALLEST_GAP) + 1.0) * rules.value_radius[step], 0.0",
        f"{BY_HAND}::TestTheWholeDecision::test_a_tuned_kappa_takes_the_place_of_lemma_1s",
    ),
    Fault(
        "mixtures: the bound is not recomputed",
        "learning/randomised.py",
        "            plan.bound[step, slot, j] = desk.facts[3, j]\n",
        "            pass\n",
        f"{BY_HAND}::TestTheWholeDecision::test_a_feature_orthogonal_to_the_safe_one",
    ),
    Fault(
        "mixtures: a row without probability can be drawn",
        "learning/randomised.py",
        "        if uniform < total:\n",
        "        if uniform <= total:\n",
        f"{BY_HAND}::TestDraw",
    ),
    Fault(
        "mixtures: a_0 is drawn as its own row",
        "learning/randomised.py",
        "return -1 if row == baseline_row else row",
        "return row",
        f"{BY_HAND}::TestDraw",
    ),
    Fault(
        "mixtures: two numbers of the coin per decision",
        "agents/rslucb_qvi.py",
        "return float(self.rng.random())",
        "return float(max(self.rng.random(), self.rng.random()))",
        f"{COIN}::TestTheCoin::test_every_decision_takes_one_number_even_where_there_is_nothing_to_draw",
    ),
    Fault(
        "mixtures: half of the coin is lost in a saved state",
        "agents/rslucb_qvi.py",
        '"has_uint32": int(coin["half"]),',
        '"has_uint32": 0,',
        f"{COIN}::TestTheCoin::test_a_saved_coin_goes_on_where_it_stopped",
    ),
    Fault(
        "mixtures: decisions claim to bound the cost itself",
        "agents/rslucb_qvi.py",
        ' = "expected cost"\n',
        ' = "cost"\n',
        f"{COIN}::test_a_decision_carries_its_mixture_and_says_that_it_bounds_an_expected_cost[rslucb-finite]",
    ),
    Fault(
        "lake: a slip counts twice",
        "world/lake_map.py",
        "(1.0 - intended) / 2.0",
        "1.0 - intended",
        f"{LAKE}::TestTheMap",
    ),
    Fault(
        "lake: slips go forwards and backwards",
        "world/lake_map.py",
        "SIDEWAYS = ((2, 3), (2, 3), (0, 1), (0, 1))",
        "SIDEWAYS = ((0, 1), (0, 1), (2, 3), (2, 3))",
        f"{LAKE}::TestTheMap",
    ),
    Fault(
        "lake: the way to the goal leads through danger",
        "world/lake_map.py",
        "if distance[there] < 0 and there not in DANGER:",
        "if distance[there] < 0:",
        f"{LAKE}::TestTheMap",
    ),
    Fault(
        "lake: the goal is worth nothing",
        "world/frozen_lake.py",
        "final = {GOAL: 1.0, ",
        "final = {GOAL: 0.0, ",
        f"{LAKE}::TestPlans",
    ),
    Fault(
        "lean: the next states of another stage",
        "learning/lean.py",
        "            members = visited.members(before)\n",
        "            members = visited.members(stage)\n",
        f"{LEAN}::test_lean_and_tables_make_the_same_plan[explorer certified-star]",
    ),
    Fault(
        "lean: the last φ instead of the sum",
        "learning/visited.py",
        "        self._moment[stage][row] += feature\n",
        "        self._moment[stage][row] = feature\n",
        f"{LEAN}::test_lean_and_tables_make_the_same_plan[explorer certified-star]",
    ),
    Fault(
        "lean: whitened with the matrix of another step",
        "learning/lean.py",
        "ridge.factor[stage].T",
        "ridge.factor[0].T",
        f"{LEAN}::test_lean_and_tables_make_the_same_plan[explorer certified-star]",
    ),
    Fault(
        "lean: safe costs of another step",
        "learning/lean.py",
        "visited.baseline_cost[states, fit.step]",
        "visited.baseline_cost[states, 0]",
        f"{LEAN}::test_lean_and_tables_make_the_same_plan[explorer certified-star]",
    ),
    Fault(
        "lean: every state of a block has the candidates of the first",
        "learning/lean.py",
        "        first, last = block.start[state], block.start[state + 1]\n",
        "        first, last = block.start[0], block.start[1]\n",
        f"{LEAN}::test_a_block_of_many_states_answers_as_each_of_them_alone",
    ),
    Fault(
        "lean: an end is worth nothing",
        "learning/lean.py",
        "            left = final * (rules.horizon - fit.step)\n",
        "            left = 0.0\n",
        f"{LEAN}::test_the_values_of_the_backup_are_those_of_the_tables",
    ),
    Fault(
        "lean: measured safe costs do not reach the backup",
        "agents/slucb_qvi.py",
        "self.visited.baseline_cost[self.visited.index[known.key], step] = self._measured(step, known.key)",
        "pass",
        f"{LEAN}::test_lean_and_tables_agree_where_safe_costs_are_unknown[appendix]",
    ),
    Fault(
        "lean: states are kept by reference",
        "problem/keys.py",
        "        return rebuilt(content_key(state))\n",
        "        return state\n",
        f"{LEAN_STATES}::test_a_buffer_that_is_written_again_does_not_change_what_was_visited",
    ),
    Fault(
        "lean: growth is not waited for",
        "agents/least_squares.py",
        "self._outcomes < (1.0 + GROWTH) * self._plan_version",
        "self._outcomes < self._plan_version",
        f"{LEAN_STATES}::test_plans_on_growth_are_a_quarter_apart_and_cost_five_times_the_last_at_most",
    ),
    Fault(
        "lean: a failed plan leaves a trace",
        "learning/lean.py",
        "            array[:] = before\n",
        "            pass\n",
        f"{LEAN_STATES}::test_features_that_are_not_finite_are_refused_wherever_they_come_up",
    ),
    Fault(
        "lean: sums over other features are restored",
        "agents/saved_visits.py",
        "max(initial=0.0) <= SAME",
        "max(initial=0.0) <= np.inf",
        f"{LEAN_STATES}::test_sums_over_other_features_are_not_restored",
    ),
    Fault(
        "live: the gate looks at nothing",
        "live/judge.py",
        'return proposal, verdict, ("gate-refused", verdict.why) if verdict.why else objection',
        "return proposal, verdict, objection",
        f"{LIVE}/test_gate.py::test_a_learner_that_lies_is_stopped_and_the_log_says_so",
    ),
    Fault(
        "live: the gate takes any radius",
        "live/gate.py",
        "if not shown.radius.value >= radius:",
        "if False:",
        f"{LIVE}/test_gate.py::test_altered_evidence_is_refused",
    ),
    Fault(
        "live: a missing cost counts as 0",
        "live/learner.py",
        "costs = None if cost is None else np.array(cost, dtype=np.float64)",
        "costs = np.array(cost if cost is not None else [0.0], dtype=np.float64)",
        f"{LIVE}/test_learner.py::test_a_missing_cost_never_changes_the_cost_sums",
    ),
    Fault(
        "live: shadow mode acts",
        "live/judge.py",
        'if ledger.mode == "shadow":',
        "if False:",
        f"{LIVE}/test_modes.py::test_in_shadow_the_safe_action_acts_and_the_proposal_is_logged",
    ),
    Fault(
        "live: the kill switch is not looked at",
        "live/judge.py",
        "if ledger.stopped is not None:",
        "if False:",
        f"{LIVE}/test_modes.py::test_the_kill_switch_gives_the_safe_action_everywhere_until_it_is_released",
    ),
    Fault(
        "live: a decision that is not logged leaves all the same",
        "live/advisor.py",
        'return self._withheld(asked.state, asked.step, asked.episode, "not-logged", str(error))',
        "return LiveDecision.from_body(self._replica.judge(asked).body, self.states, 0)",
        f"{LIVE}/test_advisor_failures.py::test_a_decision_that_cannot_be_logged_is_the_safe_action_and_says_so",
    ),
    Fault(
        "live: what is under way leaves although it was forbidden",
        "live/control.py",
        "        if made.is_baseline:\n            return made",
        "        return made",
        f"{LIVE}/test_orders.py::test_a_decision_under_way_does_not_leave_after_it_was_forbidden",
    ),
    Fault(
        "live: an order is written whatever came before it",
        "live/control.py",
        'self._write(event, f"order:{number}")',
        "self._write(event)",
        f"{LIVE}/test_orders.py::test_an_order_that_allows_more_is_refused_if_another_came_first",
    ),
    Fault(
        "live: an altered entry is learned from",
        "live/replica.py",
        "self.apply(entry.genuine())",
        "self.apply(entry)",
        f"{LIVE}/test_orders.py::test_an_altered_entry_is_not_learned_from_whoever_reads_it",
    ),
    Fault(
        "live: what is masked counts as a number",
        "agents/checks.py",
        "if np.ma.is_masked(value):",
        "if False:",
        f"{LIVE}/test_odd_values.py::test_what_is_masked_was_not_measured",
    ),
    Fault(
        "live: an impossible cost is learned from",
        "live/outcomes.py",
        "if not (np.abs(costs) <= limit).all():",
        "if False:",
        f"{LIVE}/test_advisor.py::"
        "test_a_cost_that_cannot_be_is_refused_and_everybody_plays_a_0_until_the_alarm_is_reset",
    ),
    Fault(
        "live: rows of a warm start that the log holds are taken again",
        "live/warm_start.py",
        'keyed[f"warm-row:{digest}:{before[digest]}"] = row',
        'keyed[f"warm-row:{digest}:{before[digest]}:{len(rows)}"] = row',
        f"{LIVE}/test_warm_start.py::test_rows_that_the_log_holds_are_known_whatever_comes_with_them",
    ),
    Fault(
        "live: outcomes of the mode before count for a promotion",
        "live/ledger.py",
        'if body.get("rests_on", 0) >= self.began:',
        "if True:",
        f"{LIVE}/test_modes.py::test_late_outcomes_of_the_mode_before_do_not_count_for_the_next",
    ),
    Fault(
        "live: a state is decided on as it came, not as it was logged",
        "live/states.py",
        "return logged, states.decode(logged if states.decode is decode_state else detached(logged))",
        "return logged, state",
        f"{LIVE}/test_odd_values.py::test_what_is_decided_on_is_what_the_log_gives_back",
    ),
    Fault(
        "live: a mixture is taken on trust",
        "live/gate.py",
        "why = not_drawn(known.actions, _row_of(known, action), drawn)",
        'why = ""',
        f"{LIVE}/test_randomised.py::test_the_gate_refuses_what_was_not_drawn_and_what_the_mixture_does_not_certify",
    ),
    Fault(
        "live: the mean of a mixture is learned from, not what was drawn",
        "live/outcomes.py",
        'decision["drawn"] or decision["certificate"]["feature"]',
        'decision["certificate"]["feature"]',
        f"{LIVE}/test_randomised.py::test_the_outcome_teaches_the_action_that_was_drawn",
    ),
    Fault(
        "live: an altered body is not noticed",
        "live/chain.py",
        "if (computed := _hash_of(entry)) != entry.hash:",
        "if (computed := entry.hash) != entry.hash:",
        f"{LIVE}/test_audit.py::test_the_command_line_names_the_altered_entry",
    ),
)


def check_fresh(copy: Path, faults: list[Fault]) -> None:
    """Refuse faults whose text is no longer in the source: they would test nothing."""
    for fault in faults:
        found = (copy / "src" / "tether" / fault.file).read_text().count(fault.old)
        if found != fault.times:
            raise SystemExit(
                f'fault "{fault.name}": its text occurs {found} times in {fault.file}, not {fault.times}. '
                "The source has moved on: bring the fault up to date."
            )


def is_noticed(copy: Path, fault: Fault) -> bool:
    """Plant the fault, run its test, and take the fault out again."""
    path = copy / "src" / "tether" / fault.file
    original = path.read_text()
    path.write_text(original.replace(fault.old, fault.new))
    try:
        return run_tests(copy, fault.test) == 1
    finally:
        path.write_text(original)


def run_tests(copy: Path, *tests: str) -> int:
    """pytest's exit code on the copy: 0 is green, 1 is red, anything else is neither."""
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning"]
    done = subprocess.run([*command, *tests], cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
    return done.returncode


def main() -> int:
    """Plant the chosen faults one by one; 0 if every one was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="NAME", help="only faults whose name contains this")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th of them, from the I-th on")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.part.split("/"))
    chosen = [fault for fault in FAULTS if options.k in fault.name][part - 1 :: parts]
    if not chosen:
        raise SystemExit("no fault has such a name")
    survivors = []
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        check_fresh(copy, chosen)
        if run_tests(copy, *dict.fromkeys(fault.test for fault in chosen)) != 0:
            print("some of the named tests are not green without any fault: mend them first")
            return 1
        for fault in chosen:
            noticed = is_noticed(copy, fault)
            print(f"{'noticed ' if noticed else 'SURVIVED'}  {fault.name:60}  {fault.test.split('::')[-1]}", flush=True)
            if not noticed:
                survivors.append(fault.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} planted faults noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
