"""A test is believed once it has been seen to fail: plant each fault in a copy, and expect its test to turn red.

    python tests/planted_faults.py            all faults
    python tests/planted_faults.py -k kappa   those whose name contains "kappa"
    python tests/planted_faults.py --part 2/4 every fourth of them, from the second on: CI shares them out

How a fault says what it changes: `planting.py`. The copy runs as plain Python (TETHER_KERNELS=python), so nothing is
compiled. Every named test must first be green without the fault.
"""

import sys

from planting import Fault, becomes, drop, main, never, swap

LITERAL = "tests/reference/test_literal.py"
REDUCTIONS = "tests/reference/test_reductions.py"
BY_HAND = "tests/kernels/test_mixture_solver.py"
MIXTURE_LAWS = "tests/kernels/test_mixture_laws.py"
REUSE = "tests/kernels/test_mixture_plan.py"
ALGORITHM_2 = "tests/reference/test_literal_randomised.py"
COIN = "tests/agents/test_rslucb.py"
LAKE = "tests/lab/worlds/test_lake.py"
LEAN = "tests/reference/test_lean.py"
LEAN_STATES = "tests/agents/test_lean_states.py"
LIVE = "tests/live"
AGENT = "tests/agents/test_agent.py"
BOUND = "tests/kernels/test_bound.py"
RIDGE = "tests/kernels/test_ridge.py"
CHOICE = "tests/kernels/test_choice.py"
RADIUS = "tests/kernels/test_radius.py"
PLAN = "tests/kernels/test_plan.py"
FACTS = "tests/kernels/test_facts.py"
TRIALS = "tests/kernels/test_likelihood.py"
YES_NO = "tests/agents/test_likelihood.py"
YES_NO_GATE = "tests/live/test_yes_no.py"
LISTED = "tests/agents/test_listed.py"
UNITS = "tests/agents/test_feature_units.py"
TARGETS = "tests/kernels/test_fault_targets.py"
ALARMS = "tests/agents/test_alarms.py"
LEVELS = "tests/check/test_levels.py"
STANDING = "tests/live/test_standing_alarms.py"
ORDER = "tests/agents/test_outcome_order.py"
RELATED = "tests/agents/relatives"

ALGORITHM_1 = f"{LITERAL}::test_algorithm_1_is_the_same_in_another_shape"
REMEMBERED = f"{TARGETS}::test_a_fact_is_the_safe_cost_of_the_state_and_step_that_an_outcome_belongs_to"
SAME_PLAN = f"{LEAN}::test_lean_and_tables_make_the_same_plan[explorer certified-star]"

SAFE_SETS = (
    Fault(
        "reference: the mean is not conditioned",
        "tether.reference:safe_set_terms",
        swap("rows @ estimate - share * (phi_0 @ estimate - tau_s)", "rows @ estimate"),
        "tests/reference/test_reference.py::test_the_left_side_of_equation_9_by_hand",
    ),
    Fault(
        "use A_h for A_{h,s}: the mean is not conditioned",
        "bound:known_lengths",
        swap("1.0 / g00 if g00 > 0.0 else 0.0", "0.0"),
        f"{BOUND}::test_a_ray_over_the_threshold_is_cut_where_its_bound_meets_it",
    ),
    Fault(
        "use A_h for A_{h,s}: the width is not conditioned",
        "plan:cost_forms",
        swap("conditioned and g00 > 0.0", "False"),
        f"{BOUND}::test_the_conditioned_width_is_what_the_safe_feature_does_not_explain",
    ),
    Fault(
        "flip <=: a bound equal to the threshold is refused",
        "bound:known_lengths",
        swap("upper <= limit", "upper < limit"),
        f"{BOUND}::test_a_bound_equal_to_the_threshold_is_safe",
    ),
    Fault(
        "flip <=: a bound over the threshold is accepted",
        "choice:choose",
        never("not bound_at(...) <= rules.threshold[j]"),
        f"{CHOICE}::test_a_step_that_one_constraint_refuses_falls_back_with_sound_evidence",
    ),
    Fault(
        "an alarm goes away when the evidence slips back",
        "bound:fit_cost",
        never("facts.alarm[stage, j] != 0"),
        f"{ALARMS}::test_an_alarm_stays_when_the_evidence_slips_back[tables]",
    ),
    Fault(
        "a plan latches nothing",
        "bound:keep_alarms",
        becomes("False"),
        f"{ALARMS}::test_a_compiled_block_of_episodes_latches_as_single_steps_do",
    ),
    Fault(
        "a decision off the plan latches nothing",
        "agent:LeastSquaresAgent.note_decision",
        drop("self.keep_alarms(...)"),
        f"{ALARMS}::test_a_question_latches_nothing_and_a_decision_does",
    ),
    Fault(
        "a tuned radius latches its alarms",
        "bound:is_proof",
        becomes("True"),
        f"{ALARMS}::test_a_tuned_radius_proves_nothing_and_its_alarm_does_not_stay",
    ),
    Fault(
        "NaN counts as safe",
        "bound:known_lengths",
        swap("shorter if step > 0.0 else 0.0", "0.0 if step <= 0.0 else shorter"),
        f"{BOUND}::test_a_nan_of_one_candidate_leaves_it_without_length_and_the_others_untouched",
    ),
    Fault(
        "sign of the share correction",
        "bound:pessimistic_cost",
        swap("mean - share * shift", "mean + share * shift"),
        f"{BOUND}::test_a_ray_over_the_threshold_is_cut_where_its_bound_meets_it",
    ),
    Fault(
        "sign of the radius reduction",
        "bound:state_radius",
        swap("radius * radius - residual * residual / g00", "radius * radius + residual * residual / g00"),
        f"{BOUND}::test_a_states_own_radius_follows_from_pythagoras",
    ),
    Fault(
        "no alarm on a contradicted safe cost",
        "bound:examine_known",
        swap("state_radius(...)", "np.fmax(state_radius(state[RADIUS, j], missed, g00), 0.0)"),
        f"{CHOICE}::test_a_contradicted_safe_cost_is_an_alarm",
    ),
    Fault(
        "widths are not rounded upwards",
        "bound:widened",
        becomes("np.sqrt(width2)"),
        f"{BOUND}::test_a_width_is_rounded_up",
    ),
    Fault(
        "lengths are rounded outwards",
        "bound:INWARD",
        becomes("1.0 + 1e-6"),
        f"{BOUND}::test_the_cost_bound_at_the_certified_length_is_never_over_the_threshold",
    ),
    Fault(
        "only the first constraint counts",
        "choice:choose",
        swap(
            "for j in range(constraints):\n    limit_lengths(...)",
            "limit_lengths(rules, tables, scratch, stage, slot, 0)",
        ),
        f"{LITERAL}::test_two_constraints_cut_every_ray_at_the_nearer_one",
    ),
    Fault(
        "the optimistic length of an unknown cost is pessimistic",
        "bound:measured_lengths",
        swap("-radius", "radius"),
        f"{LITERAL}::test_unknown_safe_costs_give_the_unconditioned_set[adaptive]",
    ),
    Fault(
        "the smaller root of the quadratic",
        "bound:largest_unconditioned_step",
        swap("max(first, second)", "min(first, second) if min(first, second) > 0.0 else max(first, second)"),
        f"{BOUND}::test_a_negative_radius_gives_the_optimistic_step",
    ),
    Fault(
        "the warm-up ends too soon",
        "radius:warmup_passed",
        swap("6.0 * noise", "2.0 * noise"),
        "tests/agents/test_slucb.py::test_the_safe_action_is_played_until_the_rule_passes",
    ),
    Fault(
        "the warm-up's gap is not conservative",
        "radius:warmup_gap",
        swap("4.0 * noise", "6.0 * noise"),
        f"{RADIUS}::test_the_warm_ups_gap_is_conservative_once_it_has_passed",
    ),
)

RADII = (
    Fault(
        "forget the union over H",
        "slucb:slucb_rules",
        swap("config.stages(problem) * m / problem.confidence", "m / problem.confidence"),
        f"{RADIUS}::test_the_union_is_over_steps_and_constraints",
    ),
    Fault(
        "forget the union over the grid of mixtures",
        "radius:cost_radius",
        swap("2.0 * all_events * costs.grid.shape[1]", "all_events"),
        f"{RADIUS}::test_the_smallest_radius_is_the_smallest_of_its_certified_sets",
    ),
    Fault(
        "forget the ridge's bias",
        "radius:mixture_radius",
        swap("ridge * gamma_norm * gamma_norm", "0.0"),
        f"{RADIUS}::test_the_mixture_radius_has_both_parts_under_one_root",
    ),
    Fault(
        "an old spectrum is taken for the new one",
        "radius:cost_radius",
        swap("log_det - costs.grid_at[stage]", "0.0"),
        f"{RADIUS}::test_a_lagging_spectrum_never_makes_the_radius_too_small",
    ),
)

PLANS = (
    Fault(
        "drop kappa",
        "choice:norm_scale",
        swap("kappa(...)", "1.0"),
        f"{CHOICE}::test_the_papers_bonus_is_kappa_beta_times_the_norm",
    ),
    Fault(
        "bonus from the matrix of the step before",
        "choice:score_rays",
        swap("tables.vxx[stage, first + i]", "tables.vxx[max(stage - 1, 0), first + i]"),
        ALGORITHM_1,
    ),
    Fault(
        "weights from the matrix of the first step",
        "plan:prepare_step",
        swap("values.factor[stage]", "values.factor[0]"),
        ALGORITHM_1,
    ),
    Fault(
        "every step reads the data of the first",
        "plan:plan_backwards",
        swap("step if ... > 1 else 0", "0"),
        f"{AGENT}::test_each_stage_reads_its_own_data",
    ),
    Fault(
        "values of this step instead of the next",
        "plan:target_moment",
        swap("plan.values[step + 1]", "plan.values[step]"),
        f"{AGENT}::test_values_flow_backwards_from_the_next_state",
    ),
    Fault(
        "clip the scores",
        "choice:choose",
        swap(
            "best, best_score = best_ray(value_0 + per_norm * root_0, scratch, count)",
            "work[3, :count] = np.minimum(work[3, :count], rules.horizon)\n"
            "best, best_score = best_ray(min(value_0 + per_norm * root_0, float(rules.horizon)), scratch, count)",
        ),
        ALGORITHM_1,
    ),
    Fault(
        "clip every value at H",
        "choice:clipped_value",
        swap("rules.horizon - step", "rules.horizon"),
        f"{CHOICE}::test_other_values_are_clipped_at_the_steps_left",
    ),
    Fault(
        "play the optimistic length",
        "choice:choose",
        swap("plan.length[row, slot] = work[0, best]", "plan.length[row, slot] = work[1, best]"),
        f"{CHOICE}::test_directional_scores_the_optimistic_length_and_plays_the_certified_one",
    ),
    Fault(
        "score the optimistic length by the certified one",
        "choice:score_rays",
        swap("work[at, i]", "work[0, i]"),
        f"{LITERAL}::test_each_explorer_chooses_what_its_definition_chooses[directional]",
    ),
    Fault(
        "a tie goes to the ray",
        "choice:best_ray",
        swap("scratch.work[3, i] > best_score", "scratch.work[3, i] >= best_score"),
        f"{CHOICE}::test_a_tie_goes_to_the_safe_action_and_then_to_the_first_ray",
    ),
    Fault(
        "the certified bonus ignores the steps left",
        "choice:width_scale",
        swap("rules.horizon - step", "rules.horizon"),
        f"{CHOICE}::test_the_certified_bonus_charges_the_width_with_the_steps_left",
    ),
    Fault(
        "the cross term enters the norm once",
        "choice:score_rays",
        swap("2.0 * a * rest", "a * rest"),
        f"{CHOICE}::test_the_cross_term_enters_the_norm_twice",
    ),
    Fault(
        "the table update skips g00",
        "plan:update_cost_forms",
        drop("tables.g00[stage, slot] = g00 - along * per_scale"),
        f"{PLAN}::test_tables_after_any_updates_are_the_direct_forms",
    ),
    Fault(
        "the table update forgets the share",
        "plan:update_cost_forms",
        swap("product - tables.cross[stage, i] * per_share", "product"),
        f"{PLAN}::test_tables_after_any_updates_are_the_direct_forms",
    ),
    Fault(
        "owed updates are forgotten",
        "plan:refresh",
        swap("range(owed_cost)", "range(0)"),
        f"{PLAN}::test_one_observation_of_the_safe_feature_leaves_the_width_and_halves_the_rest",
    ),
    Fault(
        "a missing cost enters the regression",
        "plan:observe",
        swap("numbers[1] == numbers[1]", "True"),
        f"{PLAN}::test_a_missing_cost_enters_the_value_sums_only",
    ),
    Fault(
        "the factor misses its rotation",
        "ridge:update_factor",
        swap("cosine * other - sine * before", "cosine * other + sine * before"),
        f"{RIDGE}::test_the_factor_after_rank_one_updates_is_the_factor_of_the_sum",
    ),
    Fault(
        "large triangles: the rows below are added",
        "ridge:whiten",
        swap("-1.0", "1.0"),
        f"{RIDGE}::test_large_triangles_are_solved_like_small_ones",
    ),
)

KNOWN_FACTS = (
    Fault(
        "facts: the known part of gamma is forgotten",
        "bound:condition_on_facts",
        swap("facts.known[stage, j, k]", "0.0"),
        f"{FACTS}::test_one_fact_by_hand",
    ),
    Fault(
        "facts: the radius is not reduced",
        "bound:fit_cost",
        swap("less * less if reduces else 0.0", "0.0"),
        f"{FACTS}::test_one_fact_by_hand",
    ),
    Fault(
        "facts: the radius is reduced by m twice",
        "bound:fit_cost",
        swap("less * less if reduces else 0.0", "2.0 * less * less if reduces else 0.0"),
        f"{FACTS}::test_one_fact_by_hand",
    ),
    Fault(
        "facts: remembered with the wrong sign",
        "ridge:accept_fact",
        swap(
            "baseline_cost[j] - dot(facts.known[stage, j], phi_0)",
            "-baseline_cost[j] - dot(facts.known[stage, j], phi_0)",
        ),
        f"{FACTS}::test_one_fact_by_hand",
    ),
    Fault(
        "facts: the basis keeps the direction",
        "ridge:accept_fact",
        drop("drop_direction(...)"),
        f"{FACTS}::test_one_fact_by_hand",
    ),
    Fault(
        "facts: the factor is not turned with the basis",
        "ridge:drop_direction",
        swap("facts.inside[stage, k, i] = old - ...", "facts.inside[stage, k, i] = old"),
        f"{PLAN}::test_tables_with_facts_in_between_are_the_direct_forms_of_the_reduced_regression",
    ),
    Fault(
        "facts: tables are not rebuilt",
        "ridge:accept_fact",
        drop("costs.owed.count[stage] = PENDING + 1"),
        f"{PLAN}::test_tables_with_facts_in_between_are_the_direct_forms_of_the_reduced_regression",
    ),
    Fault(
        "facts: later data do not reach the reduced regression",
        "ridge:observe_cost",
        drop("update_factor(facts.inside[stage], rotated, rank)"),
        f"{PLAN}::test_tables_with_facts_in_between_are_the_direct_forms_of_the_reduced_regression",
    ),
    Fault(
        "facts: known_error is not added to the radius",
        "bound:fit_cost",
        swap("known_error * np.sqrt(trace)", "0.0"),
        f"{TARGETS}::test_what_the_facts_may_be_off_by_enlarges_the_radius_and_the_margin",
    ),
    Fault(
        "facts: known_error is not added to the bound",
        "bound:fit_cost",
        swap("known_error + 4.0 * size * ULP * length", "4.0 * size * ULP * length"),
        f"{FACTS}::test_facts_that_are_off_by_rounding_do_not_alarm_but_enlarge_the_margin",
    ),
    Fault(
        "facts: the margin is not added to the bound",
        "bound:pessimistic_cost",
        swap("margin * (1.0 + abs(share))", "0.0"),
        f"{BOUND}::test_a_margin_shortens_the_certified_length_and_lengthens_the_optimistic_one",
    ),
    Fault(
        "facts: contradictions are not noticed when they come in",
        "ridge:remember",
        swap("0.0 if missed <= explained else missed", "0.0"),
        f"{FACTS}::test_contradicting_facts_raise_the_alarm_and_play_safe",
    ),
    Fault(
        "facts: contradictions raise no alarm",
        "bound:fit_cost",
        swap("facts.misfit[stage, j] <= ...", "True"),
        f"{FACTS}::test_contradicting_facts_raise_the_alarm_and_play_safe",
    ),
    Fault(
        "facts: known costs that need a larger gamma raise no alarm",
        "bound:fit_cost",
        swap("sum_of_squares <= limit * limit", "True"),
        f"{FACTS}::test_facts_that_need_a_larger_gamma_than_was_declared_are_an_alarm",
    ),
    Fault(
        "facts: a cost that the others determine is not compared with them",
        "bound:examine_known",
        never("missed > MISFIT * max(1.0, abs(cost_0)) + state[OPEN, j]"),
        f"{CHOICE}::test_a_safe_cost_that_the_facts_contradict_is_an_alarm",
    ),
    Fault(
        "facts: any fact is new, however small its new direction",
        "ridge:remember",
        swap("amplified * norm <= AMPLIFIED", "True"),
        f"{TARGETS}::test_a_fact_that_would_enlarge_an_error_too_much_is_not_remembered",
    ),
    Fault(
        "facts: features may be so close that a cost of nine decimals is not exact",
        "ridge:AMPLIFIED",
        becomes("1e6"),
        f"{FACTS}::test_costs_that_were_rounded_to_nine_decimals_stay_under_the_threshold",
    ),
    Fault(
        "facts: the cost of a state is used on top of facts that all but determine it",
        "ridge:SPANNED",
        becomes("1e-6"),
        f"{FACTS}::test_costs_that_were_rounded_to_nine_decimals_stay_under_the_threshold",
    ),
    Fault(
        "facts: errors of earlier facts are not amplified by later ones",
        "ridge:accept_fact",
        drop("facts.inverse[stage, i, held] = ..."),
        f"{TARGETS}::test_an_error_in_the_facts_is_amplified_by_no_more_than_their_pseudo_inverse",
    ),
    Fault(
        "facts: what they take off the radius is not rounded down",
        "bound:fit_cost",
        swap("moved * (1.0 - min(spread, 1.0)) - 2.0 * slip", "moved"),
        f"{TARGETS}::test_facts_take_no_more_off_the_radius_than_rounding_leaves_certain",
    ),
    Fault(
        "error bars: the weight does not inflate the radius",
        "bound:fit_cost",
        drop("radius2 += heavy * error * error"),
        f"{FACTS}::test_an_error_bar_by_hand",
    ),
    Fault(
        "error bars: m is not taken off the radius",
        "bound:fit_cost",
        swap("taken * taken if reduces else 0.0", "0.0"),
        f"{FACTS}::test_an_error_bar_by_hand",
    ),
    Fault(
        "error bars: e is not added where the ray starts",
        "bound:examine_measured",
        swap("cost_0 + rules.cost_error[j]", "cost_0"),
        f"{CHOICE}::test_a_safe_cost_with_an_error_bar_is_the_least_that_the_bar_or_the_data_prove",
    ),
    Fault(
        "error bars: facts that the weight was not chosen for are used",
        "bound:weigh_facts",
        swap("facts.used_moment[stage, j, k]", "facts.moment[stage, j, k]", times=3),
        f"{FACTS}::test_observations_after_the_weight_was_chosen_keep_the_identity",
    ),
    Fault(
        "error bars: the sign of the step to the facts",
        "bound:weigh_facts",
        swap("estimate[k] -= weight * step[k]", "estimate[k] += weight * step[k]"),
        f"{FACTS}::test_an_error_bar_by_hand",
    ),
    Fault(
        "error bars: no weight is the best",
        "bound:choose_weight",
        swap("weight * facts.used_visits[stage] * error * error", "0.0"),
        f"{FACTS}::test_a_huge_error_gets_no_weight_and_a_tiny_one_a_large_weight",
    ),
    Fault(
        "facts: not restored",
        "agent:filled",
        swap(
            "filled(value, f'{name}.{field}', arrays)",
            "value if field == 'facts' else filled(value, f'{name}.{field}', arrays)",
        ),
        "tests/agents/test_restore.py::test_restoring_equals_continuing[explorer-adaptive-mid-episode]",
    ),
    Fault(
        "facts: the safe cost of the first step is remembered at every step",
        "agent:LeastSquaresAgent.note_decision",
        swap("known.baseline_cost[decision.step]", "known.baseline_cost[0]"),
        f"{REMEMBERED}[decided]",
    ),
    Fault(
        "facts: of an outcome without a decision, that of the first step is remembered",
        "agent:LeastSquaresAgent._fact_of",
        swap("known.baseline_cost[t.step]", "known.baseline_cost[0]"),
        f"{REMEMBERED}[logged]",
    ),
    Fault(
        "facts: of a state off the tables, that of the first step is remembered",
        "agent:LeastSquaresAgent._fact_of",
        swap("known.baseline_cost[t.step]", "known.baseline_cost[0]"),
        f"{REMEMBERED}[logged, lean]",
    ),
    Fault(
        "facts: a compiled run remembers that of the first step",
        "episodes:remember_slot",
        swap("tables.baseline_cost[step, slot]", "tables.baseline_cost[0, slot]"),
        f"{REDUCTIONS}::test_a_compiled_run_equals_the_stepwise_run_bit_for_bit[default-star]",
    ),
    Fault(
        "facts: remembered without an outcome",
        "agent:LeastSquaresAgent.note_decision",
        swap(
            "self.decisions += 1",
            "self.remember(decision.step, known.actions.phi_0, known.baseline_cost[decision.step])",
        ),
        f"{REMEMBERED}[decided]",
    ),
    Fault(
        "facts: remembered of the next state",
        "agent:LeastSquaresAgent._fact_of",
        swap("self._recall(t.state)", "self._recall(t.next_state)"),
        f"{REMEMBERED}[logged]",
    ),
)

LOST = (
    Fault(
        "order: what comes early counts at once",
        "outcome_order:OutcomeOrder._due",
        swap("next(iter(queue.values())).outcome", "next((e.outcome for e in queue.values() if e.outcome), None)"),
        f"{ORDER}::test_what_comes_early_waits_for_all_before_it",
    ),
    Fault(
        "order: an outcome of a decision counts as if it had none",
        "agent:LeastSquaresAgent.learn",
        swap("[outcome] if t.decision_id is None else self.order.settle(t.decision_id, outcome)", "[outcome]"),
        f"{ORDER}::test_the_bounds_rest_on_a_prefix_whatever_comes_first[explorer-adaptive]",
    ),
    Fault(
        "order: one queue for all stages",
        "outcome_order:OutcomeOrder._stage_of",
        swap("step if len(self._queues) > 1 else 0", "0"),
        f"{ORDER}::test_stages_do_not_wait_for_each_other_and_pooled_steps_do",
    ),
    Fault(
        "order: a withdrawn decision is still waited for",
        "outcome_order:OutcomeOrder.withdraw",
        drop("del self._queues[stage][id]"),
        f"{ORDER}::test_what_comes_early_waits_for_all_before_it",
    ),
    Fault(
        "lost: the worst case is not counted",
        "agent:LeastSquaresAgent.learn_cost",
        swap("(highest - lowest) / 2.0 + off", "off"),
        f"{ORDER}::test_in_the_worst_case_a_lost_cost_is_half_its_range_off",
    ),
    Fault(
        "lost: a lost cost is not counted on the certificate",
        "agent:LeastSquaresAgent.learn_cost",
        drop("self.lost[stage] += 1"),
        f"{ORDER}::test_a_cost_lost_at_random_is_left_out_and_counted",
    ),
    Fault(
        "lost: the test of losses looks at the cheaper one",
        "monitor:Sums.close",
        swap("predicted > before", "predicted < before"),
        "tests/check/test_monitor.py::test_costs_that_get_lost_because_they_are_high_raise_the_alarm[False]",
    ),
    Fault(
        "safe action: its own cost is not tested",
        "monitor:Monitor.observe",
        drop("self._look_at_safe_action(sums, x, z, state)"),
        "tests/check/test_monitor.py::"
        "test_a_safe_action_over_the_threshold_raises_the_alarm_though_its_cost_was_never_declared",
    ),
    Fault(
        "safe action: an agent does not say when it played it",
        "agent:LeastSquaresAgent.note_decision",
        swap("decision.is_baseline", "False"),
        "tests/check/test_watch.py::test_an_unsafe_safe_action_trips_an_agent_that_was_told_nothing_of_its_cost",
    ),
    Fault(
        "safe action: outcomes of other actions count as its own",
        "outcome_order:OutcomeOrder.settle",
        swap("np.array_equal(outcome.feature, expected.feature)", "True"),
        "tests/check/test_watch.py::test_an_outcome_of_another_action_than_was_decided_is_not_one_of_the_safe_action",
    ),
    Fault(
        "safe action: the live advisor does not say when it played it",
        "learner:Learner.apply",
        swap("event.is_baseline", "False"),
        "tests/live/test_advisor.py::"
        "test_an_unsafe_safe_action_trips_the_advisor_and_is_logged_even_after_another_alarm",
    ),
    Fault(
        "the tests do not look at the declared mean of a yes/no safe cost",
        "monitor:DeclaredMeans.add",
        swap("0.0 < mean < 1.0", "False"),
        f"{LEVELS}::test_the_same_test_notices_a_declared_mean_that_is_too_low_or_too_high",
    ),
    Fault(
        "an error bar of a declared mean is not allowed for",
        "monitor:DeclaredMeans.add",
        swap("declared[j] + sign * error[j]", "declared[j]"),
        f"{LEVELS}::test_a_declared_mean_that_is_true_is_accused_no_more_often_than_the_level[0.04-0.04]",
    ),
    Fault(
        "where steps are pooled, the tests do not see the step",
        "monitor:Alternatives.of",
        drop("extra[first + step], extra[first + self.steps :] = 1.0, apart"),
        f"{LEVELS}::test_pooled_steps_that_differ_are_found_and_the_remedy_is_named",
    ),
    Fault(
        "safe action: another alarm hides it",
        "monitor:Monitor._note",
        never("alarm.test == 'safe' and self.alarm is not None and self.alarm.test != 'safe'"),
        "tests/check/test_monitor.py::test_an_unsafe_safe_action_replaces_any_other_alarm",
    ),
    Fault(
        "safe action: the test forgets its price for looking all the time",
        "monitor:excess_evidence",
        swap("0.5 * np.log(size / SCALES)", "0.0"),
        "tests/check/test_monitor.py::test_the_evidence_on_an_excess_is_the_integral_over_positive_tilts",
    ),
    Fault(
        "safe action: far under the threshold, rounding accuses it",
        "monitor:excess_evidence",
        swap("np.log(erfcx(under / sqrt(2.0)))", "log(2.0) + 0.5 * under * under + log_ndtr(-under)"),
        "tests/check/test_monitor.py::test_a_safe_action_far_under_the_threshold_is_never_accused[100000000.0]",
    ),
    Fault(
        "losses: of cheap decisions alone, they raise the alarm in the end",
        "monitor:loss_evidence",
        swap("np.log(tail)", "np.log(np.maximum(tail, 1e-300))"),
        "tests/check/test_monitor.py::test_ever_more_cheap_decisions_that_lose_their_cost_raise_no_alarm",
    ),
    Fault(
        "later effects: the lag reaches into the episode before",
        "later:earlier_features",
        swap("since + 1 if log.step[row] == log.step[row - 1] + 1 else 0", "since + 1"),
        "tests/check/test_later.py::test_single_steps_say_nothing_about_later_ones",
    ),
    Fault(
        "estimates: the means of cells are taken for exact",
        "estimates:misfit_bound",
        swap("_least_largest(x, mean, -r)", "_least_largest(x, mean, 0.0 * r)"),
        "tests/check/test_estimates.py::test_the_bracket_of_the_misfit_covers_the_truth[0.05]",
    ),
    Fault(
        "estimates: the error of the drift is left out",
        "estimates:drift_bound",
        swap("(sigma * fit_radius(gram, level) + ...) * sqrt(largest)", "0.0 * sigma"),
        "tests/check/test_estimates.py::test_the_bracket_of_the_drift_covers_the_truth[0.0001]",
    ),
    Fault(
        "check: a finite set fails although what can be certified grows",
        "growth:growth",
        never("first_new is not None and first_new >= 0"),
        "tests/check/test_growth.py::test_shared_features_grow_although_no_set_is_star_convex",
    ),
    Fault(
        "check: what was never played counts as known",
        "growth:reachable",
        swap("out[:, None] * open_length", "0.0 * open_length"),
        "tests/check/test_growth.py::test_a_feature_for_each_action_does_not_grow",
    ),
    Fault(
        "check: only what safe play itself teaches is followed",
        "growth:reachable",
        swap("np.vstack([safe, logged, ends[joined]])", "np.vstack([safe, logged])"),
        "tests/check/test_growth.py::test_what_certified_play_reaches_is_followed_further",
    ),
    Fault(
        "summary: drawn actions over the limit by themselves pass as noise",
        "own_bound:own_bounds",
        swap("mixture is None or ...", "True"),
        "tests/gym/test_limit_on.py::test_played_actions_over_the_limit_by_themselves_are_counted_apart_from_noise",
    ),
    Fault(
        "gate: a drawn action by itself is given the bound of the average",
        "gate:Gate.check",
        swap("self._by_itself(step, model, known, row, drawn.proofs)", "tuple(bounds)"),
        "tests/live/test_randomised.py::test_a_drawn_action_has_its_own_bound_beside_that_of_the_average_and_is_counted"
        "_if_it_is_over_tau",
    ),
    Fault(
        "check: the safe action is never tried where the learner gets",
        "check:Probe.act",
        swap("step < self.turn", "True"),
        "tests/gym/test_check.py::test_exploring_begins_with_safe_plays_and_ends_each_episode_with_them",
    ),
    Fault(
        "check: what the safe plays contradict is explored all the same",
        "check:played",
        swap("attach_monitor(learner, bridge.problem)", "pass"),
        "tests/gym/test_check.py::test_nothing_but_the_safe_action_is_tried_once_the_declarations_were_contradicted",
    ),
    Fault(
        "check: drift that could not be looked for passes",
        "problem_check:_tested",
        never("worst == -inf"),
        "tests/gym/test_check.py::test_early_and_late_are_not_told_apart_by_a_handful_of_outcomes",
    ),
    Fault(
        "check: an unsafe safe action passes if its later outcomes lie under the threshold",
        "problem_check:_safe_action",
        never("alarm is not None and alarm.test == 'safe'"),
        "tests/check/test_report.py::"
        "test_a_safe_action_that_broke_the_threshold_fails_though_later_outcomes_lie_under_it",
    ),
    Fault(
        "monitor: rare large noise hides behind many small ones",
        "monitor:Monitor._tables",
        swap("np.logaddexp(noise, sums.far[0])", "noise"),
        "tests/check/test_monitor.py::test_rare_large_noise_is_found_though_its_variance_is_below_that_of_sigma",
    ),
    Fault(
        "monitor: an estimate that knows little is taken for the truth",
        "monitor:Sums.looked",
        swap("sqrt(EARLY) * spectrum.bound", "0.0 * spectrum.bound"),
        "tests/check/test_monitor.py::test_a_direction_that_nobody_has_seen_is_not_taken_for_large_noise",
    ),
    Fault(
        "monitor: a declared misfit is taken for large noise",
        "monitor:Sums.stake",
        swap("self.reach[:-1] * sqrt(x @ self.inverse @ x) + misfit", "self.reach[:-1] * sqrt(x @ self.inverse @ x)"),
        "tests/check/test_monitor.py::test_stakes_on_large_noise_by_hand",
    ),
    Fault(
        "monitor: an unsafe safe action hides behind the states in which it costs little",
        "monitor:SafePlays.evidence",
        swap("np.logaddexp(self.won[0], self.won[1])", "0.0 * self.won[0]"),
        "tests/check/test_report.py::test_a_safe_action_that_costs_too_much_in_few_states_is_not_hidden_by_the_others",
    ),
    Fault(
        "monitor: stakes on the safe action's costs are not paid for",
        "monitor:SafePlays.add",
        swap("stake * excess - 0.5 * stake ** 2", "stake * excess"),
        "tests/check/test_levels.py::test_a_safe_action_at_the_threshold_is_accused_no_more_often_than_the_level",
    ),
    Fault(
        "monitor: stakes are also put on a safe action that costs less than the threshold",
        "monitor:SafePlays.add",
        swap("np.maximum(foreseen, 0.0)", "foreseen"),
        "tests/check/test_monitor.py::test_stakes_are_on_foreseen_excess_alone_and_are_paid_for",
    ),
    Fault(
        "monitor: what the safe action costs is foreseen from its own step alone",
        "monitor:Monitor._look_at_safe_action",
        swap("self._forecast.gamma @ x if len(self._sums) > 1 else own", "own"),
        "tests/check/test_monitor.py::"
        "test_few_of_many_states_in_which_the_safe_action_is_unsafe_are_foreseen[too few outcomes of each step]",
    ),
    Fault(
        "check: nothing examined passes",
        "report:Report.ok",
        swap("self.verdict == 'holds'", "self.verdict != 'fails'"),
        "tests/cli/test_check.py::test_nothing_examined_is_a_verdict_with_an_exit_code_of_its_own",
    ),
    Fault(
        "twins: the misfit forgets what lies over the threshold",
        "misfit:misfit_of",
        swap("np.where(cut, tau - ends @ gamma, -np.inf).max()", "-np.inf"),
        "tests/lab/worlds/test_misfit.py::"
        "test_where_a_cost_is_over_the_threshold_the_model_with_the_misfit_says_so_too",
    ),
    Fault(
        "twins: the misfit of the first phase alone",
        "misfit:_points",
        swap("twin.phases", "twin.phases[:1]"),
        "tests/lab/worlds/test_misfit.py::test_costs_that_change_are_missed_by_half_the_change",
    ),
    Fault(
        "lost: a warm start takes effect row by row",
        "learner:Learner._take_batch",
        swap("part.last", "True"),
        "tests/live/test_warm_start.py::test_a_warm_start_takes_effect_as_a_whole",
    ),
    Fault(
        "old data: rows count after a decision that acts",
        "learner:Learner._take_batch",
        swap("self.agent.has_acted", "False"),
        "tests/live/test_warm_start.py::test_rows_that_another_process_wrote_after_a_decision_that_acts_never_count",
    ),
    Fault(
        "old data: the gate counts rows after a decision that acts",
        "gate:Gate.add_old",
        never("self.turns.has_acted"),
        "tests/live/test_warm_start.py::test_a_learner_that_counts_old_rows_too_late_is_stopped_by_the_gate",
    ),
    Fault(
        "old data: an agent takes the second half of a table after decisions",
        "agent:LeastSquaresAgent.learn",
        never("t.decision_id is None and self.has_acted"),
        f"{ORDER}::test_old_data_count_until_something_but_the_safe_action_was_played",
    ),
    Fault(
        "old data: a restored agent has forgotten that it acted",
        "agent:LeastSquaresAgent.restore",
        swap("bool(extras.get('has_acted', manifest.decisions > 0))", "False"),
        f"{ORDER}::test_old_data_count_until_something_but_the_safe_action_was_played",
    ),
    Fault(
        "old data: logs are merged into one that has acted",
        "warm_start:append_in_time",
        drop("_check_in_time(store, math.inf)"),
        f"{LIVE}/test_merge.py::test_nothing_is_merged_into_a_log_that_has_decided_other_than_the_safe_action",
    ),
    Fault(
        "promotion: outcomes count as they come, though nothing was learned from them",
        "outcome_queues:OutcomeQueues.come",
        swap("self._due(queue)", "[outcome]"),
        f"{LIVE}/test_policy.py::test_outcomes_that_wait_for_one_decision_are_no_evidence",
    ),
    Fault(
        "promotion: a comparison goes on while learning waits",
        "ledger:Ledger._recorded",
        swap(
            "self.spending.spend(outcome.cost)",
            "self.spending.spend(outcome.cost)\nself.uplift.settle(outcome.decision_id, outcome.reward, outcome.cost)",
        ),
        f"{LIVE}/test_policy.py::test_a_comparison_waits_for_every_decision_as_the_learner_does",
    ),
    Fault(
        "the gate lets actions pass where an alarm stands",
        "gate:Gate.check",
        never("self.alarm[self._stage(step)].any()"),
        f"{STANDING}::test_the_gate_lets_nothing_pass_where_an_alarm_stands_though_the_learner_forgot_it",
    ),
    Fault(
        "a contradiction that a logged decision has met is not kept",
        "learner:Learner.apply",
        drop("self._keep_alarms(event)"),
        f"{STANDING}::test_a_contradiction_stays_in_the_log_until_an_order_releases_it[False]",
    ),
    Fault(
        "order: the gate does not look at whose turn it is",
        "gate:Gate.add_next",
        never("not self.turns.is_next(...)"),
        f"{LIVE}/test_gate.py::test_a_learner_that_counts_a_cost_before_its_turn_is_stopped",
    ),
    Fault(
        "lost: the gate counts no worst case",
        "gate:Gate.add",
        swap("off + np.ptp(self.terms.cost_range, axis=1) / 2.0", "off"),
        "tests/live/test_gate.py::test_the_gate_counts_lost_costs_in_the_worst_case",
    ),
)

ROUNDING = (
    Fault(
        "rounding: facts amplify the rounding of declared costs unseen",
        "bound:fit_cost",
        swap("rules.feature_norm * (known_error + ...)", "rules.feature_norm * 4.0 * size * ULP * length"),
        "tests/kernels/test_rounded_costs.py::test_costs_that_are_exact_up_to_double_precision_are_under_their_bounds",
    ),
    Fault(
        "rounding: sums lose what an addition loses",
        "ridge:add_products",
        drop("low[stage, row, i] += (old - (new - part)) + (term - part)"),
        f"{RIDGE}::test_a_compensated_sum_keeps_what_a_plain_sum_loses",
    ),
    Fault(
        "rounding: the estimate is not refined",
        "bound:solve_costs",
        drop("estimate[k] += change[k]"),
        f"{TARGETS}::test_the_estimate_is_refined_until_its_error_is_that_of_its_last_digit",
    ),
    Fault(
        "rounding: products in the residual lose digits",
        "ridge:product_error",
        becomes("0.0"),
        f"{RIDGE}::test_the_error_of_a_product_is_exact",
    ),
    Fault(
        "rounding: the error of the estimate is not added to the radius",
        "bound:fit_cost",
        swap("np.sqrt(radius2) * (1.0 + spread) + slip", "np.sqrt(radius2) * (1.0 + spread)"),
        f"{TARGETS}::test_the_error_of_the_estimate_is_part_of_the_radius",
    ),
    Fault(
        "rounding: errors of n rotations count as the root of n",
        "ridge:relative_error",
        swap("1.0 + costs.updates[stage]", "np.sqrt(1.0 + costs.updates[stage])"),
        f"{TARGETS}::test_errors_of_rotations_may_all_point_the_same_way",
    ),
    Fault(
        "rounding: the least eigenvalue is rounded up",
        "ridge:refresh_spectrum",
        swap("eigenvalues[0] - costs.ridge - error", "eigenvalues[0] - costs.ridge + error"),
        f"{TARGETS}::test_the_spectrum_is_rounded_toward_a_larger_radius",
    ),
    Fault(
        "rounding: the grid's log-determinants are rounded down",
        "ridge:refresh_spectrum",
        swap("eigenvalues - costs.ridge + error", "eigenvalues - costs.ridge - error"),
        f"{TARGETS}::test_the_spectrum_is_rounded_toward_a_larger_radius",
    ),
)

AGENTS = (
    Fault(
        "swap two streams: noise from the transitions' stream",
        "linear_mdp:LinearMDP.step",
        swap("streams.noise", "streams.transitions"),
        f"{AGENT}::test_noise_and_transitions_come_from_their_own_streams",
    ),
    Fault(
        "swap two streams: the compiled run draws states from the noise",
        "simulate:simulate",
        swap("streams.transitions", "streams.noise"),
        f"{REDUCTIONS}::test_a_compiled_run_equals_the_stepwise_run_bit_for_bit[default-star]",
    ),
    Fault(
        "a duplicate outcome is accepted",
        "outcome_order:OutcomeOrder.expected",
        swap("found is not None and found.outcome is None", "found is not None"),
        f"{ORDER}::test_an_outcome_of_no_open_decision_is_refused",
    ),
    Fault(
        "an outcome of another step is accepted",
        "agent:LeastSquaresAgent.learn",
        drop("check_decision(...)"),
        f"{AGENT}::test_an_outcome_of_another_step_is_refused",
    ),
    Fault(
        "a NaN cost is accepted",
        "agent:checked_costs",
        never("not np.isfinite(numbers).all()"),
        f"{AGENT}::test_a_bad_outcome_is_refused_and_changes_nothing",
    ),
    Fault(
        "a compiled run replans at other times",
        "episodes:is_due",
        swap(
            "costs.log_det[stage] - planned_growth[0, stage] > np.log(2.0)",
            "costs.log_det[stage] - planned_growth[0, stage] > np.log(3.0)",
        ),
        f"{REDUCTIONS}::test_a_compiled_run_equals_the_stepwise_run_bit_for_bit[adaptive, on doubling-star]",
    ),
    Fault(
        "plans are not rare",
        "agent:LeastSquaresAgent.plans_are_due",
        swap("log(2.0)", "0.0"),
        "tests/features/test_actions.py::test_plans_on_doubling_are_logarithmically_few",
    ),
    Fault(
        "opse: optimistic utilities",
        "relatives.opse:Opse.policy",
        swap("-bonus * known.width", "bonus * known.width"),
        f"{RELATED}/test_opse.py::test_pessimism_leaves_the_safe_policy",
    ),
    Fault(
        "opse: the largest multiplier where even that fails",
        "relatives.episodic:smallest_multiplier",
        never("not at_largest >= wanted"),
        f"{RELATED}/test_episodic.py::test_the_smallest_multiplier_is_where_a_growing_utility_reaches_what_is_wanted",
    ),
    Fault(
        "lagrangian: the price falls with violations",
        "relatives.lagrangian:LagrangianLsvi.policy",
        swap("p.horizon - self.budget - self.initial @ utility[:, 0]", "self.initial @ utility[:, 0]"),
        f"{RELATED}/test_lagrangian.py::test_the_price_moves_by_hand",
    ),
    Fault(
        "doss: certified, not optimistic, costs",
        "relatives.doss:Doss._choose",
        swap("-beta[j]", "beta[j]"),
        f"{RELATED}/test_doss.py::test_the_length_by_hand",
    ),
    Fault(
        "doss: one δ for each reward and cost",
        "relatives.doss:Doss.__init__",
        swap("len(problem.constraints) + self.is_doss", "len(problem.constraints)"),
        f"{RELATED}/test_doss.py::test_the_radii_of_a_bandit_by_hand",
    ),
    Fault(
        "hp-ucb: rewards as noisy as costs",
        "relatives.hp_ucb:HpUcb.reward_radius",
        swap("self.problem.reward_noise", "self.noise"),
        f"{RELATED}/test_bandits.py::test_hp_ucb_does_not_take_the_costs_noise_for_the_rewards",
    ),
    Fault(
        "bisection: the multiplier's bound of 2022",
        "relatives.lagrangian:LagrangianBisection.constants",
        swap("float(np.sqrt(self.episodes))", "float(self.episodes)"),
        f"{RELATED}/test_lagrangian.py::test_the_constants_of_the_theorem_by_hand",
    ),
    Fault(
        "doss: a score where nothing may be safe",
        "relatives.doss:Doss._choose",
        drop("merit[:, lost] = -excess[:, lost]"),
        f"{RELATED}/test_doss.py::test_where_nothing_may_be_safe_the_least_excess_is_played",
    ),
    Fault(
        "ncs-lsvi: a scaled radius is called the theorem's",
        "relatives.ncs_lsvi:NcsLsvi.__init__",
        swap('"theorem" if scale == 1.0 else "tuned"', '"theorem"'),
        f"{RELATED}/test_episode_contract.py::test_a_scale_of_one_is_called_the_theorem_and_any_other_tuned[ncs-lsvi]",
    ),
    Fault(
        "an agent that is relabelled keeps showing its first labels",
        "agent:LeastSquaresAgent.relabel",
        drop("self._shown = ..."),
        f"{RELATED}/test_episode_contract.py::test_a_scale_of_one_is_called_the_theorem_and_any_other_tuned[ncs-lsvi]",
    ),
    Fault(
        "ncs-lsvi: its first phase ignores its neighbourhood",
        "relatives.ncs_lsvi:NcsLsvi.choose",
        swap("reach is None", "True"),
        f"{RELATED}/test_ncs_lsvi.py::test_the_first_phase_stays_within_its_neighbourhood_and_draws_from_all_of_it",
    ),
    Fault(
        "optpess-lp: costs are not raised",
        "relatives.optpess_lp:OptPessLp.policy",
        swap("size * width", "0.0 * width"),
        f"{RELATED}/test_optpess_lp.py::test_the_safe_policy_is_played_while_its_raised_cost_is_over_the_middle",
    ),
    Fault(
        "dope: no first phase",
        "relatives.dope:Dope.policy",
        never("self.starts.sum() < (first if c.first_phase == 'theorem' else c.first_phase)"),
        f"{RELATED}/test_dope.py::test_the_first_phase_is_the_theorems",
    ),
    Fault(
        "dope: what no policy keeps is played",
        "relatives.dope:Dope.policy",
        swap("sparse.csr_array(budget[None])", "sparse.csr_array(0.0 * budget[None])"),
        f"{RELATED}/test_dope.py::test_a_programme_without_a_solution_leaves_the_safe_policy",
    ),
    Fault(
        "tabular: a uniform policy where the programme never comes",
        "relatives.tabular:TabularAgent.policy_of",
        swap("self.safe_policy", "np.full_like(self.safe_policy, 1.0 / policy.shape[2])"),
        f"{RELATED}/test_tabular.py::test_where_a_programme_never_comes_the_safe_policy_is_played",
    ),
    Fault(
        "the best policy of a budget ignores it",
        "planning:optimal_episode_policy",
        swap("horizon * np.array(world.problem.threshold)", "np.array([99.0])"),
        "tests/lab/worlds/test_cmdp.py::test_the_best_policy_of_a_budget_keeps_it_and_is_beaten_by_no_other",
    ),
)

LAKES = (
    Fault(
        "lake: a slip counts twice",
        "lake_map:transition_law",
        swap("(1.0 - intended) / 2.0", "1.0 - intended"),
        f"{LAKE}::TestTheMap",
    ),
    Fault(
        "lake: slips go forwards and backwards",
        "lake_map:SIDEWAYS",
        becomes("((0, 1), (0, 1), (2, 3), (2, 3))"),
        f"{LAKE}::TestTheMap",
    ),
    Fault(
        "lake: the way to the goal leads through danger",
        "lake_map:goal_distance",
        swap("there not in DANGER", "True"),
        f"{LAKE}::TestTheMap",
    ),
    Fault(
        "lake: the goal is worth nothing",
        "frozen_lake:frozen_lake",
        swap("{GOAL: 1.0, **...}", "{GOAL: 0.0, **dict.fromkeys(DANGER, 0.0)}"),
        f"{LAKE}::TestPlans",
    ),
)

LEAN_PLANS = (
    Fault(
        "lean: the next states of another stage",
        "plan:_backward_pass",
        swap("visited.members(before)", "visited.members(stage)"),
        SAME_PLAN,
    ),
    Fault(
        "lean: the last φ instead of the sum",
        "plan:Visited.add",
        swap("self._moment[stage][row] += feature", "self._moment[stage][row] = feature"),
        SAME_PLAN,
    ),
    Fault(
        "lean: whitened with the matrix of another step",
        "plan:choose_block",
        swap(
            "build(costs, values, rules, tables, scratch, 0, stage)",
            "build(costs, values, rules, tables, scratch, 0, 0)",
        ),
        SAME_PLAN,
    ),
    Fault(
        "lean: safe costs of another step",
        "plan:values_at",
        swap("visited.baseline_cost[states, step]", "visited.baseline_cost[states, 0]"),
        SAME_PLAN,
    ),
    Fault(
        "every state of a tile has the widths of the first",
        "plan:cost_forms",
        swap("tables.start[slot] - begin", "0"),
        f"{PLAN}::test_tables_after_any_updates_are_the_direct_forms",
    ),
    Fault(
        "lean: every state of a block has the norms of the first",
        "plan:value_forms",
        swap("tables.start[slot] - begin", "0"),
        f"{LEAN}::test_a_block_of_many_states_answers_as_each_of_them_alone",
    ),
    Fault(
        "lean: the candidates that were kept first serve every state",
        "plan:Visited.actions",
        swap("self.kept.get(number)", "next(iter(self.kept.values()), None)"),
        SAME_PLAN,
    ),
    Fault(
        "lean: a decision takes what was kept of the first state",
        "plan:Visited.known",
        swap("self.kept.get(number)", "self.kept.get(min(number, 0))"),
        f"{LEAN}::test_lean_and_tables_make_the_same_plan[explorer certified-star]",
    ),
    Fault(
        "lean: what was kept of one state certifies an action of another with the same key",
        "agent:LeastSquaresAgent._recall",
        never("self.problem.own_key is not None"),
        f"{LEAN_STATES}::test_a_key_that_is_coarser_than_the_state_leaves_the_decision_to_the_state_at_hand",
    ),
    Fault(
        "lean: more is kept than there is room for",
        "plan:Visited._keep",
        drop("self._kept_numbers += size"),
        f"{LEAN_STATES}::test_candidates_are_asked_for_once_and_kept_as_long_as_there_is_room[True]",
    ),
    Fault(
        "tripped: the bound of a_0 forgets the error of its declared cost",
        "agent:LeastSquaresAgent._tripped",
        swap("costs + error", "costs"),
        "tests/check/test_watch.py::test_the_bound_of_a_safe_cost_with_an_error_bar_counts_it_when_tripped[0.01]",
    ),
    Fault(
        "tripped: plans are made all the same",
        "agent:LeastSquaresAgent.plans_are_due",
        never("self.tripped_by"),
        "tests/check/test_watch.py::test_a_tripped_learner_plans_nothing_until_it_is_reset",
    ),
    Fault(
        "remote: a wrapper that passes on anything is taken at its word",
        "remote_worker:takes",
        swap('takes(env.env, name) if hasattr(env, "env") else True', "True"),
        "tests/gym/test_remote_env.py::test_a_reset_is_asked_only_for_what_it_takes",
    ),
    Fault(
        "remote: a late answer is taken for that to the next question",
        "remote_env:RemoteEnv._ask",
        swap('answer["id"] != self._asked', 'answer["id"] == 0'),
        "tests/gym/test_remote_env.py::test_an_answer_to_a_question_that_was_interrupted_is_not_taken_for_the_next",
    ),
    Fault(
        "remote: what is masked is sent as the number under the mask",
        "remote_worker:encode",
        swap('hasattr(value, "mask") and value.mask.any()', "False"),
        "tests/gym/test_remote_worker.py::test_what_has_no_form_is_refused_and_in_info_left_out",
    ),
    Fault(
        "bridge: a masked cost is the number under the mask",
        "gym.step:numbers_of",
        never("is_masked(found)"),
        "tests/gym/test_bad_options.py::"
        "test_a_cost_that_is_not_a_number_stops_the_run_and_a_missing_one_is_not_learned_from",
    ),
    Fault(
        "bridge: what is played need not be what was certified",
        "bridge:Bridge._check_certified",
        never("not (np.abs(now - decision.feature) <= SAME_FEATURE * self.feature_norm).all()"),
        "tests/gym/test_user_functions.py::test_what_is_played_is_what_was_certified_or_nothing",
    ),
    Fault(
        "features: one in a small unit may bend beside a large one",
        "features.actions:ActionRays._check_affine",
        swap("np.abs(rows).max(axis=0)", "np.full(rows.shape[1], np.abs(rows).max())"),
        "tests/features/test_state.py::test_features_that_bend_along_a_ray_are_refused",
    ),
    Fault(
        "bridge: what is rounded counts as what was certified",
        "gym.spaces:BoxRays.played",
        swap("along == chosen.length * whole", "True"),
        "tests/gym/test_user_functions.py::test_what_is_rounded_counts_as_what_was_played",
    ),
    Fault(
        "bridge: what is rounded by little counts as what was certified",
        "gym.spaces:BoxRays.played",
        swap("along == chosen.length * whole", "abs(along - chosen.length * whole) <= 1e-06 * whole"),
        "tests/gym/test_user_functions.py::test_without_noise_the_last_digit_of_an_action_counts",
    ),
    Fault(
        "bridge: arrays within a dictionary stay the environment's",
        "gym.step:owned",
        swap("{name: owned(part) for name, part in observation.items()}", "observation.copy()"),
        "tests/gym/test_user_functions.py::test_arrays_within_a_dictionary_are_copied_too",
    ),
    Fault(
        "comparison: the plan that does not know the last episode is compared",
        "comparison:compare",
        drop("agent.plan()"),
        "tests/gym/test_comparison.py::test_what_is_compared_has_learned_from_the_last_episode_too",
    ),
    Fault(
        "real: a torch that cannot be imported is no reason to skip PPO",
        "play:networks_fail",
        becomes("''"),
        "tests/lab/real/test_play.py::test_networks_are_skipped_and_named_if_torch_cannot_be_imported",
    ),
    Fault(
        "a safe cost that a function says is not held against the threshold",
        "problem:Problem._costs_of_baseline",
        drop("self._check_baseline(...)"),
        "tests/agents/test_bad_input.py::test_a_problem_that_breaks_an_assumption_is_refused",
    ),
    Fault(
        "lean: an end is worth nothing",
        "choice:end_trajectory",
        swap("final * (rules.horizon - step)", "0.0"),
        f"{CHOICE}::test_where_a_trajectory_ends_nothing_is_played_and_the_value_is_known",
    ),
    Fault(
        "lean: measured safe costs do not reach the backup",
        "slucb:SlucbQvi.learn",
        drop("self.visited.baseline_cost[...] = measured"),
        f"{LEAN}::test_lean_and_tables_agree_where_safe_costs_are_unknown[appendix]",
    ),
    Fault(
        "lean: states are kept by reference",
        "keys:own_copy",
        swap("rebuilt(content_key(state))", "state"),
        f"{LEAN_STATES}::test_a_buffer_that_is_written_again_does_not_change_what_was_visited",
    ),
    Fault(
        "lean: growth is not waited for",
        "agent:LeastSquaresAgent.plans_are_due",
        swap("(1.0 + GROWTH) * self.plan_version", "self.plan_version"),
        f"{LEAN_STATES}::test_plans_on_growth_are_a_quarter_apart_and_cost_five_times_the_last_at_most",
    ),
    Fault(
        "lean: a failed plan leaves a trace",
        "plan:plan_lean",
        drop("array[...] = old"),
        f"{LEAN_STATES}::test_features_that_are_not_finite_are_refused_wherever_they_come_up",
    ),
    Fault(
        "lean: sums over other features are restored",
        "state_file:take_visited",
        swap("SAME", "np.inf"),
        f"{LEAN_STATES}::test_sums_over_other_features_are_not_restored",
    ),
)

MIXTURES = (
    Fault(
        "mixtures: sign of the width in the rise",
        "mixture_solver:cost_rise",
        swap("total + problem.radius[j] * width_of(problem, x)", "total - problem.radius[j] * width_of(problem, x)"),
        f"{BY_HAND}::test_the_rise_adds_the_radius_times_the_width",
    ),
    Fault(
        "mixtures: widths are not rounded up",
        "mixture_solver:PRODUCT_ROUNDING",
        becomes("0.0"),
        f"{MIXTURE_LAWS}::test_residuals_that_nearly_cancel_keep_the_width_that_is_left",
    ),
    Fault(
        "mixtures: scale_back is forgotten",
        "mixture_solver:feasible_value",
        drop("scale_back(...)"),
        f"{MIXTURE_LAWS}::test_the_best_mixture_is_exactly_feasible_and_its_bound_is_not_below_its_value",
    ),
    Fault(
        "mixtures: scaled outwards",
        "mixture_solver:SCALED_INWARD",
        becomes("1.0 + 1e-9"),
        f"{MIXTURE_LAWS}::test_whatever_is_scaled_back_is_a_certified_sub_distribution",
    ),
    Fault(
        "mixtures: the cap is forgotten",
        "mixture_solver:scale_back",
        swap("1.0 if total <= ... else SCALED_INWARD / total", "1.0"),
        f"{BY_HAND}::TestScaleBack::test_the_cap_holds_for_several_actions",
    ),
    Fault(
        "mixtures: NaN is scaled like a number",
        "mixture_solver:scale_back",
        swap("clean and factor > 0.0 and needed > -np.inf and slack > 0.0", "factor > 0.0 and slack > 0.0"),
        f"{BY_HAND}::TestScaleBack::test_a_number_that_is_not_finite_certifies_nothing",
    ),
    Fault(
        "mixtures: the linear program forgets pairs",
        "mixture_solver:linear_optimum",
        never("slope[i] < slack"),
        f"{BY_HAND}::TestLinearProgram::test_two_actions_share_the_slack",
    ),
    Fault(
        "mixtures: the subgradient forgets the radius",
        "mixture_solver:slope_at",
        swap("problem.radius[j] / np.sqrt(square)", "1.0 / np.sqrt(square)"),
        f"{BY_HAND}::test_a_subgradient_of_the_rise",
    ),
    Fault(
        "mixtures: the certificate is the value itself",
        "mixture_solver:certificate",
        swap("min(bound, found)", "min(bound, value)"),
        f"{MIXTURE_LAWS}::test_no_feasible_mixture_beats_the_bound",
    ),
    Fault(
        "mixtures: the cap binds everywhere",
        "mixture_solver:on_support",
        swap("not (0.0 < scale < np.inf and total <= 1.0)", "True"),
        f"{BY_HAND}::TestBestMixture::test_stationary_points_on_a_support_are_the_hand_made_ones",
    ),
    Fault(
        "mixtures: the cap binds nowhere",
        "mixture_solver:on_support",
        swap("total <= 1.0", "True"),
        f"{BY_HAND}::TestBestMixture::test_stationary_points_on_a_support_are_the_hand_made_ones",
    ),
    Fault(
        "mixtures: only supports of two are tried",
        "mixture_solver:try_all_supports",
        swap("range(2, size + 1)", "range(2, 3)"),
        f"{BY_HAND}::TestBestMixture::test_three_independent_actions_share_it_too",
    ),
    Fault(
        "mixtures: a growing support stops at once",
        "mixture_solver:grow_support",
        swap("range(4 * size)", "range(1)"),
        f"{BY_HAND}::TestBestMixture::test_six_independent_actions_share_it_too",
    ),
    Fault(
        "mixtures: a pair under the cap takes the other root",
        "mixture_solver:capped_pair",
        swap("... * steepness > 0.0", "(problem.gain[first] - problem.gain[second]) * steepness < 0.0"),
        f"{BY_HAND}::TestBestMixture::test_a_pair_under_the_cap_stops_on_the_side_where_the_gain_grows",
    ),
    Fault(
        "mixtures: only the first constraint is checked",
        "mixture_solver:certified_optimum",
        swap(
            "cost_rise(...) <= problem.slack[other]",
            "(other > 0 or cost_rise(problem, other, problem.x) <= problem.slack[other])",
        ),
        f"{MIXTURE_LAWS}::test_with_several_constraints_what_counts_as_solved_satisfies_all",
    ),
    Fault(
        "mixtures: the optimistic value is pessimistic",
        "mixture_solver:lower_rises",
        swap("problem.rise[j, i] - ...", "problem.rise[j, i] + problem.radius[j] * problem.width[i]"),
        f"{BY_HAND}::TestOptimism::test_the_optimistic_value_and_the_certified_share",
    ),
    Fault(
        "mixtures: the optimistic mixture is played uncut",
        "mixture_solver:optimistic_optimum",
        drop("scale_back(...)"),
        f"{BY_HAND}::TestOptimism::test_every_constraint_cuts",
    ),
    Fault(
        "mixtures: the products keep the row of a_0",
        "mixture_plan:pose",
        swap("-1 if tables.is_star[slot] != 0 else tables.baseline_row[slot]", "-1"),
        f"{BY_HAND}::TestTheWholeDecision::test_rows_keep_their_place_around_the_safe_action[0]",
    ),
    Fault(
        "mixtures: the residual term is dropped",
        "mixture_plan:constrain",
        swap("share * state[SHIFT, j]", "0.0"),
        f"{BY_HAND}::TestTheWholeDecision::test_a_share_of_the_safe_feature_costs_its_share",
    ),
    Fault(
        "mixtures: rounding does not raise the costs",
        "mixture_plan:constrain",
        swap("mean - state[COST_0, j] + rounding", "mean - state[COST_0, j]"),
        f"{TARGETS}::test_the_margin_raises_the_cost_of_every_action_in_a_mixture",
    ),
    Fault(
        "mixtures: products without conditioning",
        "plan:cost_forms",
        drop("scratch.tile[k, offset + i] = residual"),
        f"{BY_HAND}::TestTheWholeDecision::test_a_share_of_the_safe_feature_costs_its_share",
    ),
    Fault(
        "mixtures: kept without a certificate",
        "mixture_plan:keep_mixture",
        swap("bound - value <= CLOSED * largest", "True"),
        f"{REUSE}::test_every_planned_mixture_is_the_best_of_its_own_step",
    ),
    Fault(
        "mixtures: kept from any step",
        "mixture_plan:keep_mixture",
        swap("problems.kept_row[slot] != row + 1", "problems.kept_row[slot] < 0"),
        f"{REUSE}::test_nothing_is_kept_from_an_older_step_or_without_a_closed_certificate",
    ),
    Fault(
        "mixtures: kept although the constraint moved",
        "mixture_plan:constrain",
        drop("problems.kept_row[slot] = -1"),
        f"{REUSE}::test_mixtures_are_kept_while_the_constraint_stays_and_never_when_it_moves",
    ),
    Fault(
        "mixtures: the safe cost of the step after is taken for this one's",
        "mixture_plan:constrain_step",
        swap("same_baseline_cost(...)", "True"),
        f"{REUSE}::test_every_planned_bound_is_that_of_its_own_step_and_under_the_threshold",
    ),
    Fault(
        "mixtures: flip <= where one action is obvious",
        "mixture_plan:is_certified",
        swap("-np.inf < rise <= ...", "rise >= (1.0 - 1e-12) * problems.slack[slot, j]"),
        f"{BY_HAND}::TestTheWholeDecision::test_a_feature_orthogonal_to_the_safe_one",
    ),
    Fault(
        "mixtures: rows slip around a_0",
        "mixture_plan:write_mixture",
        swap("column - first == tables.baseline_row[slot]", "column == first"),
        f"{BY_HAND}::TestTheWholeDecision::test_rows_keep_their_place_around_the_safe_action",
    ),
    Fault(
        "mixtures: rows slip around a_0 where one action is obvious",
        "mixture_plan:play_action",
        swap("plan.mixture[row, column] = 1.0", "plan.mixture[row, column - 1] = 1.0"),
        f"{BY_HAND}::TestTheWholeDecision::test_a_certified_action_is_played_outright",
    ),
    Fault(
        "mixtures: values are not clipped",
        "mixture_plan:mixture_value",
        becomes("score"),
        f"{ALGORITHM_2}::test_algorithm_2_chooses_the_mixtures_of_its_transcription[4-0.1-0.2-None]",
    ),
    Fault(
        "mixtures: a tuned kappa is ignored",
        "choice:norm_scale",
        never("rules.kappa == rules.kappa"),
        f"{CHOICE}::test_a_tuned_kappa_takes_the_place_of_lemma_1s",
    ),
    Fault(
        "mixtures: the bound is not recomputed",
        "mixture_plan:write_mixture",
        drop("plan.bound[row, slot, j] = current.bound[j]"),
        f"{BY_HAND}::TestTheWholeDecision::test_a_feature_orthogonal_to_the_safe_one",
    ),
    Fault(
        "mixtures: a row without probability can be drawn",
        "mixture_plan:draw_row",
        swap("uniform < total", "uniform <= total"),
        f"{BY_HAND}::TestDraw",
    ),
    Fault(
        "mixtures: a_0 is drawn as its own row",
        "mixture_plan:draw_row",
        swap("-1 if row == baseline_row else row", "row"),
        f"{BY_HAND}::TestDraw",
    ),
    Fault(
        "mixtures: two numbers of the coin per decision",
        "rslucb:MixingAgent.played",
        swap("self.rng.random()", "max(self.rng.random(), self.rng.random())"),
        f"{COIN}::TestTheCoin::test_every_decision_takes_one_number_even_where_there_is_nothing_to_draw",
    ),
    Fault(
        "mixtures: half of the coin is lost in a saved state",
        "rslucb:MixingAgent.take_extras",
        swap("extras['coin']", "{**extras['coin'], 'has_uint32': 0}"),
        f"{COIN}::TestTheCoin::test_a_saved_coin_goes_on_where_it_stopped",
    ),
    Fault(
        "mixtures: decisions claim to bound the cost itself",
        "rslucb:MixingAgent.bounds",
        becomes("'cost'"),
        f"{COIN}::test_a_decision_carries_its_mixture_and_says_that_it_bounds_an_expected_cost[rslucb-finite]",
    ),
)

LIVE_USE = (
    Fault(
        "live: the gate looks at nothing",
        "judge:_examined",
        swap("('gate-refused', verdict.why) if verdict.why else objection", "objection"),
        f"{LIVE}/test_gate.py::test_a_learner_that_lies_is_stopped_and_the_log_says_so",
    ),
    Fault(
        "live: the gate takes any radius",
        "examine:examined_radius",
        never("not shown.radius.value >= ..."),
        f"{LIVE}/test_gate.py::test_altered_evidence_is_refused",
    ),
    Fault(
        "live: the gate does not ask how many facts a certificate rests on",
        "examine:misstated",
        never("shown.facts != facts"),
        f"{LIVE}/test_gate_facts.py::test_altered_evidence_on_facts_is_refused",
    ),
    Fault(
        "live: facts that contradict each other pass the gate",
        "gate_facts:ExactFacts.contradiction",
        never("not misfit <= ..."),
        f"{LIVE}/test_gate_facts.py::test_facts_that_cannot_all_be_true_let_nothing_pass",
    ),
    Fault(
        "live: the gate keeps its estimate where facts settle everything",
        "gate_model:_conditioned_on",
        swap("gamma_hat = span.known", "gamma_hat = estimates"),
        f"{LIVE}/test_gate_facts.py::test_many_genuine_certificates_pass[all-0.0]",
    ),
    Fault(
        "live: the gate adds no error where a ray starts",
        "examine:start_of",
        swap("declared + ...", "declared"),
        f"{LIVE}/test_gate_facts.py::test_the_bound_with_an_error_bar_is_the_smaller_of_two_by_hand",
    ),
    Fault(
        "live: the gate's facts are not in a snapshot",
        "gate:Gate.arrays",
        drop("mine |= ..."),
        f"{LIVE}/test_gate_facts.py::test_bytes_restore_the_facts_and_the_future_is_the_same",
    ),
    Fault(
        "live: a mixture is taken on trust",
        "gate:Gate.check",
        swap("not_drawn(...)", "''"),
        f"{LIVE}/test_randomised.py::test_the_gate_refuses_what_was_not_drawn_and_what_the_mixture_does_not_certify",
    ),
    Fault(
        "live: a missing cost counts as 0",
        "learner:Learner._count",
        swap("outcome.cost", "np.zeros(1) if outcome.cost is None else outcome.cost"),
        f"{LIVE}/test_replica.py::test_a_missing_cost_never_changes_the_cost_sums",
    ),
    Fault(
        "live: shadow mode acts",
        "judge:_first_objection",
        never("ledger.mode == 'shadow'"),
        f"{LIVE}/test_policy.py::test_in_shadow_the_safe_action_acts_and_the_proposal_is_logged",
    ),
    Fault(
        "live: the kill switch is not looked at",
        "judge:halt",
        never("stopped is not None"),
        f"{LIVE}/test_policy.py::test_the_kill_switch_gives_the_safe_action_everywhere_until_it_is_released",
    ),
    Fault(
        "hub: every turn of the loop is a batch of its own",
        "hub:Hub._gather",
        swap("loop.time() < until", "False"),
        "tests/service/test_hub.py::test_requests_are_gathered_while_more_arrive_but_not_for_long",
    ),
    Fault(
        "snapshots of many open decisions are saved as often as others",
        "following:Follower.after_outcome",
        swap("len(replica.learner.agent.order)", "0"),
        "tests/live/test_advisor_replicas.py::test_where_many_decisions_are_open_snapshots_are_as_much_rarer",
    ),
    Fault(
        "live: a decision that is not logged leaves all the same",
        "batches:Batches._not_logged",
        swap("self._handing_out.safe(...)", "LiveDecision.of(item.events[-1], item.request.state)"),
        f"{LIVE}/test_advisor_failures.py::test_a_decision_that_cannot_be_logged_is_the_safe_action_and_says_so",
    ),
    Fault(
        "live: what is under way leaves although it was forbidden",
        "handing_out:HandingOut._handed_out",
        swap("made.is_baseline", "True"),
        f"{LIVE}/test_orders.py::test_a_decision_under_way_does_not_leave_after_it_was_forbidden",
    ),
    Fault(
        "live: a stop waits for the log",
        "latches:Latches.latch",
        swap("(stop, math.inf)", "(stop, 0.0)"),
        f"{LIVE}/test_orders.py::test_a_stop_holds_before_it_is_logged",
    ),
    Fault(
        "live: a stop that another process announced is not heard",
        "latches:Latches._take_announcement",
        swap("math.inf if entry is None else entry.seq", "0"),
        f"{LIVE}/test_orders.py::test_a_stop_reaches_other_processes_before_it_is_logged[memory]",
    ),
    Fault(
        "live: a stop that was announced and not logged stays unlogged",
        "latches:Latches._take_announcement",
        drop("self._notes.add(stop)"),
        f"{LIVE}/test_orders.py::test_a_stop_reaches_other_processes_before_it_is_logged[memory]",
    ),
    Fault(
        "live: a stop is announced to nobody",
        "orders:Orders.log_stop",
        drop("self._follower.store.announce_stop(stop.model_dump_json())"),
        f"{LIVE}/test_orders.py::test_a_stop_is_announced_before_it_is_logged_and_though_it_cannot_be",
    ),
    Fault(
        "live: announcements that cannot be read are passed over",
        "latches:Latches.in_effect",
        swap("STOPS_UNREAD", "None"),
        f"{LIVE}/test_orders.py::test_an_announcement_that_cannot_be_read_is_a_stop_until_it_can",
    ),
    Fault(
        "live: decisions without an outcome cost nothing",
        "ledger:Ledger.too_many",
        swap("self.spending.claimed(under_way)", "self.spending.in_window()"),
        f"{LIVE}/test_guards.py::test_decisions_without_an_outcome_count_toward_the_budget_by_their_bounds",
    ),
    Fault(
        "live: a stop that cannot be logged is forgotten",
        "orders:Orders.log_stop",
        drop("self._notes.add(stop)"),
        f"{LIVE}/test_orders.py::test_a_stop_that_cannot_be_logged_holds_and_is_logged_later",
    ),
    Fault(
        "live: a plan that failed is passed over",
        "learner:Learner._learned",
        swap("np.linalg.LinAlgError", "Exception"),
        f"{LIVE}/test_half_way.py::test_a_decision_rests_on_no_plan_that_a_replay_would_not_make",
    ),
    Fault(
        "live: what was left half-way is decided on",
        "following:Follower._fail",
        swap("self.failure = ...", "self.failure = ''"),
        f"{LIVE}/test_half_way.py::test_functions_that_fail_while_an_outcome_is_applied_cost_the_safe_action_until_they_answer",
    ),
    Fault(
        "live: a stop that was interrupted is never logged, and so never released",
        "orders:Orders.log_stop",
        swap("BaseException", "StoreError"),
        f"{LIVE}/test_half_way.py::test_a_stop_that_was_interrupted_holds_and_is_logged_with_the_next_entry",
    ),
    Fault(
        "service: a stop that could not be logged waits for somebody who asks",
        "hub:Hub._note_head",
        drop("self._log_notes()"),
        "tests/service/test_service_load.py::test_a_stop_that_could_not_be_logged_is_logged_though_nobody_asks_for_anything",
    ),
    Fault(
        "live: functions that exit are not taken for a failure",
        "following:Follower._rebuild",
        swap("BaseException", "Exception"),
        f"{LIVE}/test_half_way.py::test_functions_that_fail_while_an_outcome_is_applied_cost_the_safe_action_until_they_answer",
    ),
    Fault(
        "live: logged features are compared with nothing",
        "binding:_difference",
        becomes("''"),
        f"{LIVE}/test_binding.py::test_a_problem_that_was_changed_is_refused",
    ),
    Fault(
        "live: a sketch knows no order",
        "binding:_weights",
        becomes("np.ones(count)"),
        f"{LIVE}/test_binding.py::test_a_sketch_tells_states_apart",
    ),
    Fault(
        "live: listed states are not compared",
        "opening:check_settings",
        never("first.listed != settings.listed"),
        f"{LIVE}/test_binding.py::test_listed_states_are_compared_before_anything_is_decided",
    ),
    Fault(
        "live: the rate guard does not count what is under way",
        "ledger:Ledger.too_many",
        swap("self.others() + under_way", "self.others()"),
        f"{LIVE}/test_guards.py::test_the_rate_guard_counts_what_is_under_way",
    ),
    Fault(
        "service: two that start at the same moment share a port",
        "run:claim_port",
        never("config.port and sys.platform == 'linux'"),
        "tests/service/test_service_start.py::test_two_services_that_start_at_the_same_moment_do_not_share_a_port",
    ),
    Fault(
        "live: several processes exceed a rate together",
        "ledger:Ledger._decided",
        never("too_many[0]"),
        f"{LIVE}/test_guards.py::test_a_rate_holds_for_all_processes_together",
    ),
    Fault(
        "live: of the canary's arms, only the proposal is one too many",
        "ledger:Ledger._decided",
        swap("not made.is_baseline or made.canary is not None", "not made.is_baseline"),
        f"{LIVE}/test_guards.py::test_what_is_one_too_many_does_not_leave_in_either_arm_of_the_canary",
    ),
    Fault(
        "live: what was decided before obeys no guard of today",
        "handing_out:HandingOut._guarded",
        becomes("('', '')"),
        f"{LIVE}/test_guards.py::test_what_was_decided_before_obeys_the_guards_as_of_now",
    ),
    Fault(
        "live: an idempotency key is everybody's",
        "records:request_key",
        becomes("f'request:{key}'"),
        f"{LIVE}/test_guards.py::test_a_key_belongs_to_its_caller",
    ),
    Fault(
        "live: a log that was restored is taken for the old one",
        "head_note:HeadNote.contradiction",
        becomes("''"),
        "tests/service/test_head_note.py",
    ),
    Fault(
        "live: an order is written whatever came before it",
        "orders:Orders._give",
        swap("self._follower.write(event, ...)", "self._follower.write(event)"),
        f"{LIVE}/test_orders.py::test_an_order_that_allows_more_is_refused_if_another_came_first",
    ),
    Fault(
        "live: an altered entry is learned from",
        "replica:Replica.catch_up",
        swap("entry.genuine()", "entry"),
        f"{LIVE}/test_orders.py::test_an_altered_entry_is_not_learned_from_whoever_reads_it",
    ),
    Fault(
        "live: what is masked counts as a number",
        "agent:as_numbers",
        never("is_masked(value)"),
        f"{LIVE}/test_odd_values.py::test_what_is_masked_was_not_measured",
    ),
    Fault(
        "agents: sums that a Ctrl-C has left half-way certify",
        "agent:LeastSquaresAgent.check_whole",
        never("self.half_way"),
        "tests/agents/test_agent.py::test_an_agent_that_was_interrupted_half_way_does_not_go_on",
    ),
    Fault(
        "agents: a coarse key lends one state the bounds of another",
        "agent:LeastSquaresAgent._recall",
        never("self.problem.own_key is not None"),
        "tests/agents/test_agent.py::test_a_key_that_is_coarser_than_the_state_does_not_lend_the_bounds_of_another",
    ),
    Fault(
        "agents: what a class takes for equal lends one state the bounds of another",
        "agent:LeastSquaresAgent._recall",
        swap("not has_exact_key(state)", "False"),
        "tests/agents/test_agent.py::test_what_a_class_takes_for_equal_does_not_lend_the_bounds_of_another_state",
    ),
    Fault(
        "problem: functions may write into the state that they are asked about",
        "problem:Problem.look_up",
        never("self.key_of(state) != key"),
        "tests/gym/test_user_functions.py::test_features_that_write_into_the_state_are_refused",
    ),
    Fault(
        "bridge: what an environment has made of an action counts as what was played",
        "bridge:Bridge.play",
        swap(
            "action = self.env_action(decision)\nstepped = self.step(action)",
            "action = owned(self.env_action(decision))\nstepped = unpack(self.env.step(action))",
        ),
        "tests/gym/test_user_functions.py::test_what_counts_is_what_was_played_whatever_the_environment_makes_of_the_action",
    ),
    Fault(
        "bridge: a function of costs may write into the next state",
        "gym.step:read_cost",
        swap("owned(stepped.observation)", "stepped.observation"),
        "tests/gym/test_user_functions.py::test_who_is_shown_a_state_may_write_into_it",
    ),
    Fault(
        "bridge: an object that the environment reuses is taken for what was observed",
        "gym.step:owned",
        swap(
            "copy.deepcopy(observation)", "observation.copy() if isinstance(observation, np.ndarray) else observation"
        ),
        "tests/gym/test_user_functions.py::test_what_an_environment_writes_into_its_last_observation_is_not_what_was_observed",
    ),
    Fault(
        "learn: a callback may write into the next state",
        "learn:_episode",
        swap("owned(outcome.next_state)", "outcome.next_state"),
        "tests/gym/test_user_functions.py::test_who_is_shown_a_state_may_write_into_it",
    ),
    Fault(
        "certified: a choice may write into what is certified",
        "certified:CertifiedSet.__post_init__",
        drop("array.flags.writeable = False"),
        "tests/agents/test_certified.py::test_a_choice_cannot_lengthen_what_is_certified",
    ),
    Fault(
        "live: where costs drift, a safe cost is what it was declared first",
        "learner:Learner.look_up",
        swap("self.agent.blocks is not None", "False"),
        f"{LIVE}/test_gate_drift.py::test_a_safe_cost_that_moves_is_asked_for_with_every_decision",
    ),
    Fault(
        "warm start: rows of a call that was cut short are known, and count never",
        "warm_start:_drafts",
        swap("_cut_short(store, keyed, batch) if known and waits else ()", "()"),
        f"{LIVE}/test_warm_start.py::test_a_table_that_has_grown_completes_what_was_cut_short",
    ),
    Fault(
        "warm start: equal rows of yes/no costs with σ = ½ are dropped",
        "warm_start:warm_start_drafts",
        swap("any(problem.bounded) or _yes_or_no(rows)", "any(problem.bounded)"),
        f"{LIVE}/test_warm_start.py::test_equal_rows_of_yes_and_no_are_never_dropped",
    ),
    Fault(
        "problem: a masked safe cost is the number under the mask",
        "action_sets:is_masked",
        swap("any(type(value) is not float and is_masked(value) for value in values)", "False"),
        "tests/agents/test_bad_input.py::test_what_is_masked_or_complex_is_no_safe_cost_feature_or_setting",
    ),
    Fault(
        "problem: what a user's function says of the safe cost is read with its mask off",
        "assumptions.safe_cost:cost_at",
        swap('real_numbers(given, "safe_cost")', "np.asarray(given, dtype=np.float64)"),
        "tests/agents/test_bad_input.py::test_what_is_masked_or_complex_is_no_safe_cost_feature_or_setting",
    ),
    Fault(
        "live: an impossible cost is learned from",
        "judge:_check_range",
        never("not (np.abs(costs) <= limit).all()"),
        f"{LIVE}/test_advisor.py::test_a_cost_that_cannot_be_is_refused_and_everybody_plays_a_0_until_the_alarm_is_reset",
    ),
    Fault(
        "live: rows of a warm start that the log holds are taken again",
        "warm_start:_keyed",
        swap("f'warm-row:{digest}:{before[digest]}'", "f'warm-row:{digest}:{before[digest]}:{len(rows)}'"),
        f"{LIVE}/test_warm_start.py::test_rows_that_the_log_holds_are_known_whatever_comes_with_them",
    ),
    Fault(
        "live: outcomes of the mode before count for a promotion",
        "ledger:Ledger._take_effect",
        swap("outcome.rests_on >= self.began", "True"),
        f"{LIVE}/test_policy.py::test_late_outcomes_of_the_mode_before_do_not_count_for_the_next",
    ),
    Fault(
        "live: a state is decided on as it came, not as it was logged",
        "states:as_logged",
        swap("states.decode(...)", "state"),
        f"{LIVE}/test_odd_values.py::test_what_is_decided_on_is_what_the_log_gives_back",
    ),
    Fault(
        "live: the mean of a mixture is learned from, not what was drawn",
        "judge:recorded",
        swap("made.feature", "made.certificate.feature"),
        f"{LIVE}/test_randomised.py::test_the_outcome_teaches_the_action_that_was_drawn",
    ),
    Fault(
        "live: an altered body is not noticed",
        "chain:Chain.follow",
        swap("_hash_of(entry)", "entry.hash"),
        f"{LIVE}/test_audit.py::test_the_command_line_names_the_altered_entry",
    ),
)

OPTIONS = "tests/agents/test_options.py"
GATE_OPTIONS = "tests/live/test_gate_options.py"
EFFECTS = "tests/problem/test_effects.py"
DEMANDS = "tests/agents/test_demands.py"

DECLARED = (
    Fault(
        "samples that are off do not enlarge the radius",
        "radius:bias_radius",
        becomes("0.0"),
        f"{RADIUS}::test_samples_that_are_off_enlarge_every_theorems_radius_by_the_root_of_their_squares",
    ),
    Fault(
        "outcomes are not counted as off by the misfit",
        "agent:LeastSquaresAgent.learn_cost",
        drop("add_bias(...)"),
        f"{OPTIONS}::test_the_radius_grows_with_the_root_of_the_number_of_samples",
    ),
    Fault(
        "the misfit of the point itself is forgotten",
        "bound:fit_cost",
        swap(
            "rules.feature_norm * (known_error + 4.0 * size * ULP * length) + rules.point_error[j]",
            "rules.feature_norm * (known_error + 4.0 * size * ULP * length)",
        ),
        f"{OPTIONS}::test_a_ray_begins_two_misfits_over_the_safe_cost_and_ends_one_over_the_model",
    ),
    Fault(
        "a ray with a misfit begins at the safe cost",
        "bound:ray_start",
        becomes("scratch.state[COST_0, j]"),
        f"{OPTIONS}::test_a_ray_begins_two_misfits_over_the_safe_cost_and_ends_one_over_the_model",
    ),
    Fault(
        "the gate forgets that samples are off",
        "gate:Gate.add",
        drop("self.bias[place] += off**2"),
        f"{GATE_OPTIONS}::test_the_gates_own_radius_counts_the_misfit_of_every_sample",
    ),
    Fault(
        "the gate forgets the misfit of the point",
        "examine:measured",
        drop("free += misfit"),
        f"{GATE_OPTIONS}::test_a_bound_that_forgets_what_was_declared_is_refused[misfit, unknown]",
    ),
    Fault(
        "the gate forgets the noise of a realised cost",
        "examine:noise_of",
        becomes("0.0"),
        f"{GATE_OPTIONS}::test_genuine_certificates_pass_and_say_what_they_bound[realised]",
    ),
    Fault(
        "a typed safe cost is taken as exact",
        "assumptions.safe_cost:typed_error",
        becomes("0.0"),
        "tests/assumptions/test_relaxations.py::test_a_cost_that_was_typed_is_off_by_half_a_unit_of_its_last_digit",
    ),
    Fault(
        "a guessed error lets a safe cost over the threshold pass",
        "assumptions.safe_cost:SafeCost.declared_error",
        becomes("self.off_by"),
        "tests/assumptions/test_relaxations.py::test_a_guessed_error_lets_no_safe_cost_over_the_threshold_pass",
    ),
    Fault(
        "likelihood ratios take a relaxation that they do not know",
        "assumptions.relaxation:Relaxation.changes",
        becomes("(0.0,)"),
        "tests/assumptions/test_relaxations.py::test_likelihood_ratios_do_not_take_a_relaxation_that_they_do_not_know",
    ),
    Fault(
        "what a relaxation says of readings is forgotten",
        "problem:Problem.sample_error",
        becomes("np.zeros(len(self.constraints))"),
        "tests/assumptions/test_new_relaxation.py::test_a_worn_sensor_breaks_the_limit_unless_it_is_declared",
    ),
    Fault(
        "the gate passes a certificate that does not say what it rests on",
        "live.examine:misstated",
        never("shown.assumptions != terms.assumptions[j]"),
        f"{GATE_OPTIONS}::test_a_bound_that_forgets_what_was_declared_is_refused",
    ),
    Fault(
        "a realised limit is kept in the mean only",
        "assumptions.realised:Realised.reserve",
        swap("0.0 if self.noise_scales else self.quantile(noise)", "0.0"),
        f"{OPTIONS}::test_additive_noise_takes_its_quantile_off_the_threshold",
    ),
    Fault(
        "noise that scales is not charged at the end of a ray",
        "bound:known_lengths",
        swap("scratch.projected[1 + j, first + i] + rules.quantile[j]", "scratch.projected[1 + j, first + i]"),
        f"{OPTIONS}::test_noise_that_scales_with_the_length_is_charged_at_the_end_of_the_ray",
    ),
    Fault(
        "a safe action whose noise passes the limit is accepted",
        "problem:check_realised",
        swap("costs + reserve", "costs"),
        f"{OPTIONS}::test_a_safe_action_whose_noise_passes_the_limit_is_refused_at_the_door",
    ),
    Fault(
        "the checker takes rewards to have any noise",
        "problem_check:_reward_noise",
        swap("problem.reward_noise or (0.5 if in_unit else None)", "0.5 if in_unit else None"),
        "tests/check/test_report.py::test_rewards_are_tested_with_the_noise_that_was_declared",
    ),
    Fault(
        "the mixture's value radius forgets the noise of rewards",
        "radius:value_radius_at",
        swap("rules.reward_noise", "0.0"),
        f"{RADIUS}::test_the_mixture_value_radius_follows_the_reward_data",
    ),
    Fault(
        "the checker does not tell rounded safe costs from exact ones",
        "problem_check:DIGITS",
        becomes("1.0"),
        "tests/check/test_report.py::test_safe_costs_that_were_rounded_are_told_from_exact_ones",
    ),
    Fault(
        "the noise of rewards does not enter the value radius",
        "agent:value_radius",
        swap(
            "np.arange(horizon, 0, -1, dtype=np.float64) + 2.0 * problem.reward_noise",
            "np.arange(horizon, 0, -1, dtype=np.float64)",
        ),
        f"{RADIUS}::test_noisy_rewards_enlarge_the_remaining_value_radius_by_twice_their_noise",
    ),
    Fault(
        "the ridge of values is absolute",
        "agent:LeastSquaresConfig.absolute_ridge",
        swap("declared * (size * size)", "declared"),
        f"{UNITS}::test_choices_do_not_depend_on_the_unit_of_features[explorer adaptive]",
    ),
    Fault(
        "the bonus of what was never seen depends on the unit of features",
        "agent:value_radius",
        swap("2.0 * horizon * np.sqrt(ridge) / config.size(problem)", "2.0 * horizon * np.sqrt(ridge)"),
        f"{UNITS}::test_choices_do_not_depend_on_the_unit_of_features[learn]",
    ),
    Fault(
        "a tolerance on atoms is absolute",
        "kernels.likelihood:add_trial",
        swap("SAME_FEATURE * trials.norm * trials.norm", "1e-5"),
        f"{UNITS}::test_choices_do_not_depend_on_the_unit_of_features[yes/no]",
    ),
    Fault(
        "the grid is rescaled by every feature",
        "ridge:observe_cost",
        swap("costs.updates[stage] == 0 and norm2 > 0.0", "norm2 > 0.0"),
        f"{RADIUS}::test_the_grid_is_in_units_of_the_first_features_squared_norm_and_then_stays",
    ),
    Fault(
        "steps with different safe costs are pooled",
        "agent:LeastSquaresAgent._check_pooled",
        becomes("None"),
        f"{OPTIONS}::test_safe_costs_that_differ_by_step_cannot_be_pooled",
    ),
    Fault(
        "a safe cost that no γ within B can give is accepted",
        "effects:check_demand",
        never("over.any()"),
        f"{EFFECTS}::test_a_safe_cost_that_no_gamma_within_b_can_give_is_refused_where_it_is_first_seen",
    ),
    Fault(
        "B from effects is their largest, not their norm",
        "effects:norm_of_effects",
        swap("np.linalg.norm(given)", "given.max()"),
        f"{EFFECTS}::test_effects_become_their_euclidean_norm",
    ),
    Fault(
        "an alarm names the declared B as the least",
        "demands:demanded_norm",
        swap("declared[j] * 2.0**low", "declared[j]"),
        f"{DEMANDS}::test_safe_costs_that_together_need_a_larger_gamma_name_it_in_the_decision_and_in_a_warning",
    ),
    Fault(
        "an alarm says nothing",
        "agent:LeastSquaresAgent._why",
        becomes("self.tripped_by"),
        f"{DEMANDS}::test_mixtures_name_it_as_well",
    ),
    Fault(
        "estimates: noise counts toward the least B",
        "estimates:norm_floor",
        swap("(sigma * sqrt(price) + off) / stiff", "0.0"),
        "tests/check/test_estimates.py::test_the_floor_of_the_norm_is_under_the_truth",
    ),
)

LIKELIHOOD = (
    Fault(
        "bounded costs: forget log(events)",
        "likelihood:threshold_of",
        swap("evidence - np.log(2.0) - log_events", "evidence - np.log(2.0)"),
        f"{TRIALS}::test_the_threshold_is_the_better_evidence_less_log_two_and_log_events",
    ),
    Fault(
        "bounded costs: two guesses for the price of one",
        "likelihood:threshold_of",
        swap("evidence - np.log(2.0) - log_events", "evidence - log_events"),
        f"{TRIALS}::test_the_threshold_is_the_better_evidence_less_log_two_and_log_events",
    ),
    Fault(
        "bounded costs: z for 1 - z",
        "likelihood:join_atom",
        swap("trials.weight[cell, 2 * atom] += cost", "trials.weight[cell, 2 * atom] += 1.0 - cost"),
        f"{TRIALS}::test_equal_features_share_one_atom",
    ),
    Fault(
        "bounded costs: the guess knows the outcome",
        "likelihood:observe_trial",
        swap(
            "q, plain = ...",
            "add_trial(trials, cell, feature, cost)\nrefit(trials, cell, dual)\n"
            "q, plain = plug_in(trials, cell, feature), plain_guess(trials, cell)",
        ),
        f"{TRIALS}::test_evidence_is_what_the_guess_made_before_each_outcome_was_worth",
    ),
    Fault(
        "bounded costs: the error of a fact is forgotten",
        "likelihood:load_fact",
        swap("cost + error", "cost"),
        f"{TRIALS}::test_the_error_of_a_fact_is_counted",
    ),
    Fault(
        "bounded costs: a maximum of the dual is taken where it is not",
        "likelihood:largest_term",
        swap("weight * (np.log(weight / y) - 1.0) + y", "weight * (np.log(weight / y) - 1.0)"),
        f"{TRIALS}::test_each_maximum_of_the_dual_is_in_closed_form",
    ),
    Fault(
        "bounded costs: multipliers that do not add up to x count",
        "likelihood:dual_value",
        never("not (price >= 0.0 and left <= SPANS * trials.norm)"),
        f"{TRIALS}::test_multipliers_that_miss_x_bound_nothing",
    ),
    Fault(
        "bounded costs: a lost outcome costs nothing",
        "likelihood:lose_trial",
        drop("trials.evidence[cell] += np.log(min(q, 1.0 - q))"),
        f"{TRIALS}::test_a_lost_outcome_costs_what_the_worst_one_would",
    ),
    Fault(
        "bounded costs: merging drops outcomes",
        "likelihood:merge_closest",
        drop("trials.sums[cell, 2 * b + side, k] += trials.sums[cell, 2 * a + side, k]"),
        f"{TRIALS}::test_what_is_merged_keeps_every_sum",
    ),
    Fault(
        "bounded costs: what was planned is played as it is",
        "agent:LeastSquaresAgent.propose",
        drop("proofs = self._certify(self.likelihoods, plan, step, known)"),
        f"{YES_NO}::test_what_was_played_depends_on_the_likelihood_and_not_on_the_guess",
    ),
    Fault(
        "bounded costs: a mixture is not scaled back",
        "likelihood:Likelihoods.certify_mixture",
        swap("INWARD * share / played", "1.0"),
        f"{YES_NO}::test_a_mixture_is_scaled_back_until_it_is_certified[rays]",
    ),
    Fault(
        "bounded costs: a contradiction raises no alarm",
        "likelihood:Likelihoods.bounds",
        never("proven < CONTRADICTION"),
        f"{YES_NO}::test_facts_that_contradict_the_data_raise_the_alarm",
    ),
    Fault(
        "bounded costs: a ray with a misfit that is cut short begins at the safe cost",
        "likelihood:Likelihoods._ray_start",
        swap("2.0 * float(self.point_error[j])", "0.0"),
        f"{YES_NO}::test_what_is_planned_and_cut_short_begins_two_misfits_over_the_safe_cost",
    ),
    Fault(
        "bounded costs: a certified set that is cut short begins at the safe cost",
        "likelihood:Likelihoods.certify_all",
        swap("self._ray_start(k, float(cost))", "cost"),
        f"{YES_NO}::test_a_ray_that_a_bounded_cost_cuts_short_begins_two_misfits_over_the_safe_cost",
    ),
    Fault(
        "bounded costs: an answer with an unknown safe cost is never found again",
        "likelihood:Likelihoods.ray",
        swap("str(cost)", "cost"),
        f"{YES_NO}::test_an_answer_is_found_once_also_where_the_safe_cost_is_unknown_and_few_are_kept",
    ),
    Fault(
        "bounded costs: facts count when they come",
        "agent:LeastSquaresAgent.learn",
        swap("(None, fact) if self.likelihoods is None else (fact, None)", "(None, fact)"),
        f"{YES_NO}::test_a_fact_counts_in_its_turn_so_that_no_guess_knows_what_came_after",
    ),
    Fault(
        "bounded costs: what differs by a billionth is the same",
        "kernels.likelihood:SPANS",
        becomes("1e-9"),
        f"{TRIALS}::test_a_feature_that_nothing_speaks_about_has_the_trivial_bound",
    ),
    Fault(
        "bounded costs: sums that have lost their digits count",
        "likelihood:load_rows",
        swap("n * trials.norm > LIGHT", "n > 0.0"),
        f"{TRIALS}::test_a_reading_too_small_for_its_digits_says_nothing_about_other_features[5e-324]",
    ),
    Fault(
        "yes/no gate: sums that have lost their digits count",
        "yes_no:YesNo.rows",
        swap("self.used_weight[cell] * self._norm > LIGHT", "self.used_weight[cell] > 0.0"),
        f"{YES_NO_GATE}::test_a_reading_too_small_for_its_digits_says_nothing_about_other_features",
    ),
    Fault(
        "yes/no costs: equal rows of old data are dropped",
        "warm_start:warm_start_drafts",
        never('duplicates == "drop" and (any(problem.bounded) or _yes_or_no(rows))'),
        "tests/live/test_warm_start.py::test_equal_rows_of_yes_and_no_are_never_dropped",
    ),
    Fault(
        "yes/no gate: what differs by a billionth is the same",
        "yes_no:MISSED",
        becomes("2e-9"),
        f"{YES_NO_GATE}::test_multipliers_that_miss_x_bound_nothing",
    ),
    Fault(
        "bounded costs: any cost is taken",
        "agent:checked_costs",
        never("one.in_unit_interval and not 0.0 <= numbers[j] <= 1.0"),
        f"{YES_NO}::test_a_cost_outside_the_unit_interval_is_refused_and_leaves_no_trace",
    ),
    Fault(
        "yes/no gate: forget log(events)",
        "yes_no:YesNo.least_likelihood",
        swap("log(2.0 * events)", "log(2.0)"),
        f"{YES_NO_GATE}::test_without_data_a_ray_costs_what_its_ends_can_cost",
    ),
    Fault(
        "yes/no gate: two guesses for the price of one",
        "yes_no:YesNo.least_likelihood",
        swap("log(2.0 * events)", "log(events)"),
        f"{YES_NO_GATE}::test_without_data_a_ray_costs_what_its_ends_can_cost",
    ),
    Fault(
        "yes/no gate: the guess is taken after its outcome",
        "learner:Learner._count",
        swap(
            "add(outcome.step, outcome.feature, outcome.cost, outcome.at)",
            "self.gate.guess(outcome.step, self.agent.likelihoods.guess(self.agent.stage_of(outcome.step)))\n"
            "add(outcome.step, outcome.feature, outcome.cost, outcome.at)",
        ),
        f"{YES_NO_GATE}::test_lost_and_late_costs_are_counted_as_the_learner_counts_them",
    ),
    Fault(
        "yes/no gate: a lost outcome costs nothing",
        "yes_no:YesNo.add",
        drop("self.evidence[stage, k] += np.log(np.minimum(q, 1.0 - q))"),
        f"{YES_NO_GATE}::test_what_a_guess_was_worth_is_counted_before_the_outcome_is",
    ),
    Fault(
        "yes/no gate: merging drops outcomes",
        "yes_no:YesNo._merge",
        drop("pairs[b] += pairs[a]"),
        f"{YES_NO_GATE}::test_the_gate_groups_outcomes_as_the_learner_does_to_the_last_bit",
    ),
    Fault(
        "yes/no gate: the error of a fact is forgotten",
        "yes_no:YesNo.rows",
        swap("costs + error", "costs"),
        f"{YES_NO_GATE}::test_a_fact_counts_with_its_error",
    ),
    Fault(
        "yes/no gate: a maximum of the dual is taken where it is not",
        "yes_no:_largest",
        swap("within + y", "within"),
        f"{YES_NO_GATE}::test_with_no_accident_in_n_trials_the_bound_is_that_of_one_coin",
    ),
    Fault(
        "yes/no gate: multipliers that miss x count",
        "yes_no:YesNo.proven",
        swap("missed <= MISSED * self._norm", "True"),
        f"{YES_NO_GATE}::test_multipliers_that_miss_x_bound_nothing",
    ),
    Fault(
        "yes/no gate: what multipliers miss of x costs nothing",
        "yes_no:YesNo.proven",
        swap("missed + blurred", "blurred"),
        f"{YES_NO_GATE}::test_multipliers_that_miss_x_bound_nothing",
    ),
    Fault(
        "yes/no gate: a price under 0 counts",
        "yes_no:YesNo.proven",
        swap("m >= 0.0", "True"),
        f"{YES_NO_GATE}::test_no_multipliers_whatever_let_an_action_pass_that_may_cost_more_than_the_threshold",
    ),
    Fault(
        "yes/no gate: a negative multiplier takes the upper limit",
        "yes_no:YesNo.proven",
        swap("np.maximum(y * low, y * high)", "y * high"),
        f"{YES_NO_GATE}::test_a_fact_counts_with_its_error",
    ),
    Fault(
        "yes/no gate: what multipliers prove may be over the threshold by a little",
        "examine:examined_multipliers",
        swap("own <= tau", "True"),
        f"{YES_NO_GATE}::test_what_multipliers_prove_may_not_be_over_the_threshold_by_a_rounding_error",
    ),
    Fault(
        "live: what is cut for a margin keeps the multipliers of the longer ray",
        "judge:with_margin",
        swap("shown.multipliers.scaled_back(kept)", "shown.multipliers"),
        f"{YES_NO_GATE}::test_what_is_cut_for_a_margin_in_guarded_mode_passes_too",
    ),
    Fault(
        "bounded costs: a ray is lengthened past what the other kind of cost allows",
        "likelihood:Likelihoods.certify_ray",
        swap("min(length, planned)", "length"),
        "tests/agents/test_combinations.py::"
        "test_no_cost_is_over_its_bound_and_what_is_restored_decides_alike[both kinds-True-False]",
    ),
    Fault(
        "bounded costs: the list of actions is taken where a ray is played",
        "problem:Problem.listed_features",
        swap("not actions.is_star and ...", "True"),
        f"{LISTED}::test_rays_list_nothing",
    ),
    Fault(
        "listed actions: multipliers that miss x count",
        "listed:Listed.bound",
        never("not np.linalg.norm(missed) <= SPANS * self._norm"),
        f"{LISTED}::test_any_multipliers_give_a_bound_and_those_that_miss_x_give_none",
    ),
    Fault(
        "listed actions: the last digits of what multipliers miss are dropped",
        "listed:Program.multipliers",
        swap("self._coordinates((x - y @ features)[None])", "tidied(self._coordinates((x - y @ features)[None]))"),
        f"{LISTED}::test_the_list_proves_most_safe_moves_of_the_lake_before_any_outcome",
    ),
    Fault(
        "yes/no gate: what a sum of multipliers drops is forgotten",
        "yes_no:_missed",
        swap("large[0] + small[0]", "large[0]"),
        f"{YES_NO_GATE}::test_what_multipliers_miss_is_never_more_than_is_counted",
    ),
    Fault(
        "yes/no gate: multipliers are summed with few digits",
        "yes_no:_missed",
        swap("ULP**2", "ULP"),
        f"{YES_NO_GATE}::test_the_gate_lets_pass_all_that_the_list_proves_on_the_lake",
    ),
    Fault(
        "listed actions: a negative multiplier takes the upper limit",
        "listed:Listed.bound",
        swap("np.maximum(y * low, y * high)", "y * high"),
        f"{LISTED}::test_an_error_bar_counts_on_both_sides",
    ),
    Fault(
        "listed actions: states where trajectories end count",
        "problem:Problem.listed_features",
        swap("np.isnan(self.final_reward_of(state))", "True"),
        f"{LISTED}::test_states_where_trajectories_end_list_nothing",
    ),
    Fault(
        "yes/no gate: listed actions are not looked at",
        "examine:proven_by",
        never("is_listed and terms.listed is not None"),
        f"{YES_NO_GATE}::test_the_gate_lets_pass_what_the_list_of_actions_proves_and_nothing_without_the_list",
    ),
    Fault(
        "listed actions: a certificate does not say that it rests on them",
        "likelihood:Likelihoods.rests_on",
        becomes("0"),
        f"{LISTED}::test_a_certificate_says_how_many_listed_actions_it_takes_to_cost_0_to_1",
    ),
    Fault(
        "yes/no gate: a bound may rest on the list without saying so",
        "examine:examined_multipliers",
        swap("shown.listed > 0", "True"),
        f"{YES_NO_GATE}::test_a_bound_that_rests_on_the_list_without_saying_so_is_refused",
    ),
    Fault(
        "yes/no gate: any number of listed actions passes",
        "examine:misstated",
        never("shown.listed not in (0, most)"),
        f"{YES_NO_GATE}::test_a_bound_that_rests_on_the_list_without_saying_so_is_refused",
    ),
    Fault(
        "live: a certificate may say that it bounds something else",
        "examine:misstated",
        never("shown.bounds != bounds"),
        f"{YES_NO_GATE}::test_altered_evidence_is_refused",
    ),
    Fault(
        "live: a certificate may say that lost costs count as something else",
        "examine:misstated",
        swap("(shown.lost, shown.lost_as) != (lost, lost_as)", "shown.lost != lost"),
        f"{YES_NO_GATE}::test_altered_evidence_is_refused",
    ),
    Fault(
        "yes/no gate: any bound passes",
        "examine:examined_multipliers",
        never("not own <= shown.bound + STATED"),
        f"{YES_NO_GATE}::test_altered_evidence_is_refused",
    ),
    Fault(
        "yes/no gate: a radius proves a yes/no cost",
        "examine:misstated",
        never("shown.kind != kind"),
        f"{YES_NO_GATE}::test_altered_evidence_is_refused",
    ),
)

DRIFT = "tests/agents/test_drift.py"
GATE_DRIFT = "tests/live/test_gate_drift.py"
MONITOR = "tests/check/test_monitor.py"

DRIFTS = (
    Fault(
        "drift: the age of outcomes does not enlarge the radius",
        "agents.drift:Blocks._drifted",
        swap("self.drift * ...", "0.0 * self.drift"),
        f"{DRIFT}::test_the_drift_adds_the_root_of_squared_ages_to_the_radius",
    ),
    Fault(
        "drift: outcomes do not grow older",
        "agents.drift:Blocks._advance",
        drop("self.ages[:, 2] += ..."),
        f"{DRIFT}::test_deciding_without_outcomes_makes_data_older",
    ),
    Fault(
        "drift: old blocks never leave",
        "agents.drift:Blocks._begin",
        drop("copy_row(...)"),
        f"{DRIFT}::test_blocks_hold_the_outcomes_of_decisions_since_they_began",
    ),
    Fault(
        "drift: an outcome enters blocks that began after its decision",
        "agents.drift:Blocks.add",
        swap("0 <= self.number[row] * self._window[row] <= at", "self.number[row] >= 0"),
        f"{DRIFT}::test_a_late_outcome_belongs_to_the_blocks_of_its_decision",
    ),
    Fault(
        "drift: every block has all of δ",
        "agents.drift:Blocks._begin",
        drop("self.costs.split[row] = ..."),
        f"{DRIFT}::test_all_blocks_together_have_no_more_than_delta",
    ),
    Fault(
        "drift: the radius ignores the block's part of δ",
        "radius:cost_radius",
        swap("rules.events * costs.split[stage]", "rules.events"),
        f"{DRIFT}::test_the_radius_has_two_roots_because_the_target_of_one_must_stand_still",
    ),
    Fault(
        "drift: one root for a target that moves",
        "radius:cost_radius",
        never("rules.radius_kind == MOVING"),
        f"{DRIFT}::test_the_radius_has_two_roots_because_the_target_of_one_must_stand_still",
    ),
    Fault(
        "drift: safe costs are remembered",
        "slucb:slucb_rules",
        swap("known and not drifts", "known"),
        f"{DRIFT}::test_the_safe_cost_is_the_one_that_is_declared_now",
    ),
    Fault(
        "drift: the safe cost is the one of the first visit",
        "agent:LeastSquaresAgent._recall",
        never("self.blocks is not None"),
        f"{DRIFT}::test_the_safe_cost_is_the_one_that_is_declared_now",
    ),
    Fault(
        "drift: the bounds of an older plan justify a choice",
        "agent:LeastSquaresAgent.decides_afresh",
        swap("self.blocks is not None", "False"),
        f"{DRIFT}::test_deciding_without_outcomes_makes_data_older",
    ),
    Fault(
        "drift: the gate forgets the age of outcomes",
        "gate:Gate._sums",
        swap("(np.sqrt(sums.bias) + moved) ** 2", "sums.bias"),
        f"{GATE_DRIFT}::test_the_gates_own_radius_counts_the_age_of_every_outcome",
    ),
    Fault(
        "drift: old blocks never leave the gate",
        "gate:Gate._begin",
        drop("self.gram[block] = ..."),
        f"{GATE_DRIFT}::test_the_gates_blocks_are_the_learners",
    ),
    Fault(
        "drift: the gate counts an outcome in blocks that began after its decision",
        "gate:Gate._places",
        swap("(begun >= 0.0) & ...", "begun >= 0.0"),
        f"{GATE_DRIFT}::test_the_gates_blocks_are_the_learners",
    ),
    Fault(
        "drift: every block of the gate has all of δ",
        "gate:Gate._sums",
        swap("len(windows) * turn**2 * pi**2 / 6.0", "1.0"),
        f"{GATE_DRIFT}::test_a_block_of_later_turns_has_less_of_delta",
    ),
    Fault(
        "drift: one root for a target that moves, in the gate",
        "gate_model:least_radii",
        swap("terms.radius == 'classical' or terms.drift is not None", "terms.radius == 'classical'"),
        f"{GATE_DRIFT}::test_two_roots_take_the_place_of_one_in_the_gate",
    ),
    Fault(
        "drift: the gate does not look at what a certificate says of it",
        "examine:misstated",
        swap("shown.drift == drift", "True"),
        f"{GATE_DRIFT}::test_a_certificate_that_says_something_else_of_the_drift_is_refused",
    ),
    Fault(
        "drift: only proposals come too late, not a_0 drawn in their place",
        "learner:Learner.outdated",
        swap("(made.proposal or made.certificate)", "made.certificate"),
        f"{GATE_DRIFT}::test_both_arms_of_a_comparison_come_too_late_alike",
    ),
    Fault(
        "drift: a decision leaves however many were made since",
        "learner:Learner.outdated",
        becomes("''"),
        f"{GATE_DRIFT}::test_a_decision_that_comes_too_late_is_withheld",
    ),
    Fault(
        "drift: old data of unknown age are taken",
        "warm_start:_refuse_drift",
        never("any(problem.drift)"),
        f"{GATE_DRIFT}::test_old_data_of_unknown_age_are_refused",
    ),
    Fault(
        "drift per second: a question does not make outcomes older",
        "agents.drift:Blocks.look_at",
        swap("abs(time - float(self.clock[2]) - float(self.clock[0]))", "0.0"),
        f"{DRIFT}::test_ages_are_seconds_between_stamps",
    ),
    Fault(
        "drift per second: a question from before the latest stamp makes outcomes younger",
        "agents.drift:Blocks.look_at",
        swap(
            "abs(time - float(self.clock[2]) - float(self.clock[0]))", "max(time - self.clock[2] - self.clock[0], 0.0)"
        ),
        f"{DRIFT}::test_stamps_in_any_order_never_make_an_outcome_younger",
    ),
    Fault(
        "drift per second: a stamp counts as a decision",
        "agents.drift:Blocks._advance",
        swap("to - float(self.clock[0])", "1.0 if self.per_second else to - float(self.clock[0])"),
        f"{DRIFT}::test_ages_are_seconds_between_stamps",
    ),
    Fault(
        "drift per second: after a pause the older of two blocks stays",
        "agents.drift:Blocks._begin",
        swap("range(max(newest - 1, 0), newest + 1)", "range(newest, newest + 1)"),
        f"{DRIFT}::test_a_pause_makes_data_old_and_begins_blocks_anew",
    ),
    Fault(
        "drift per second: the clock follows a stamp that no block can be numbered by",
        "agents.drift:Blocks._is_stamp",
        swap("time - first < FAR * self.windows[0]", "True"),
        f"{DRIFT}::test_a_stamp_too_far_ahead_to_number_blocks_by_moves_nothing[9007199254740992.0]",
    ),
    Fault(
        "drift per second: the gate's clock follows such a stamp",
        "gate:Gate.tick",
        never("not time - float(self.origin[0]) < FAR * self.terms.windows[0]"),
        f"{GATE_DRIFT}::test_the_gates_blocks_are_the_learners_by_the_clock",
    ),
    Fault(
        "drift per second: a decision without its time is taken",
        "agent:LeastSquaresAgent.at",
        never("self.blocks is not None and self.blocks.per_second and seconds is None"),
        f"{DRIFT}::test_a_decision_without_its_time_is_refused",
    ),
    Fault(
        "drift per second: what was asked last stays in the state",
        "agent:LeastSquaresAgent.at",
        drop("self.time = None"),
        f"{DRIFT}::test_asking_changes_nothing",
    ),
    Fault(
        "drift per second: the gate examines a question at the clock of the last decision",
        "gate:Gate._lead",
        becomes("0.0"),
        f"{GATE_DRIFT}::test_the_gate_ages_outcomes_up_to_the_time_of_the_question",
    ),
    Fault(
        "drift per second: the gate takes stamps for numbers",
        "gate:Gate._places",
        swap("at - float(self.origin[stage])", "at"),
        f"{GATE_DRIFT}::test_the_gates_blocks_are_the_learners_by_the_clock",
    ),
    Fault(
        "drift per second: a decision leaves however late it is",
        "learner:Learner.outdated",
        never("blocks.per_second"),
        f"{GATE_DRIFT}::test_a_decision_that_leaves_too_late_by_the_clock_is_withheld",
    ),
    Fault(
        "check: expected costs may be negative or over 1",
        "problem_check:_outside",
        swap("np.ones(len(rows))", "2.0 * np.ones(len(rows))"),
        "tests/check/test_report.py::test_expected_costs_beyond_one_contradict_bounded_costs",
    ),
    Fault(
        "check: a declared drift is not compared with the log",
        "estimates:_drift",
        never("found.low > problem.drift[j]"),
        "tests/check/test_estimates.py::test_a_declared_drift_is_compared_with_the_log",
    ),
    Fault(
        "check: a declared drift counts as slow only along a straight line",
        "estimates:drift_bound",
        swap("max(size - error, 0.0) / reach", "size / span"),
        "tests/check/test_estimates.py::test_a_true_drift_is_not_contradicted_however_it_moves",
    ),
    Fault(
        "check: a declared misfit is not compared with the log",
        "estimates:_misfit",
        never("found.low > declared"),
        "tests/check/test_estimates.py::test_a_declared_misfit_is_compared_with_the_log",
    ),
    Fault(
        "check: a declared drift is taken for a misfit",
        "estimates:misfit_bound",
        swap("cells.radius(sigma, level) + ...", "cells.radius(sigma, level)"),
        "tests/check/test_estimates.py::test_a_declared_drift_is_not_taken_for_a_misfit",
    ),
    Fault(
        "drift: the online tests take declared drift for a contradiction",
        "monitor:Monitor._tables",
        swap("self._misfit * np.sqrt(sums.count) + ...", "self._misfit * np.sqrt(sums.count)"),
        f"{MONITOR}::test_a_declared_drift_raises_no_alarm_and_a_faster_one_does",
    ),
    Fault(
        "drift: each new start of the online tests spends the whole level",
        "monitor:Monitor._limit_of",
        becomes("self.limit"),
        f"{MONITOR}::test_tests_that_start_anew_where_costs_drift_share_the_level",
    ),
)

ANSWERED = "tests/check/test_wizard.py::test_what_is_printed_can_be_played_unless_an_obstacle_is_named"

WIZARD = (
    Fault(
        "wizard: shows the figures of another column",
        "wizard:cell",
        swap("2 + column", "1 + column"),
        "tests/cli/test_wizard.py::test_json_is_one_object_with_every_answer",
    ),
    Fault("wizard: drift passes as covered", "wizard:obstacles", swap("not answer.covered", "False"), ANSWERED),
    Fault(
        "wizard: what no agent takes is declared",
        "wizard:obstacles",
        swap("word.startswith(answer.refuses)", "False"),
        ANSWERED,
    ),
    Fault(
        "wizard: after a wrong answer in a pipe the next line answers",
        "cli.check:_ask",
        swap("line and sys.stdin.isatty()", "line"),
        "tests/cli/test_wizard.py::test_a_pipe_with_a_wrong_answer_exits_with_2_and_declares_nothing",
    ),
)

HEADLINES = "tests/studies/test_claims.py"

CLAIMS = (
    Fault(
        "the lake's row of yes/no costs has no claim",
        "studies.figure2:_proves",
        swap("cell.world_options.get('costs') == 'bounded'", "False"),
        f"{HEADLINES}::test_a_row_of_yes_no_costs_that_stops_learning_fails_its_claim",
    ),
    Fault(
        "a lake row that learns a sixth has learned",
        "studies.figure2:_learned",
        swap("final.low >= ENOUGH", "final.low >= 0.1"),
        f"{HEADLINES}::test_a_row_of_yes_no_costs_that_stops_learning_fails_its_claim",
    ),
    Fault(
        "any regret keeps pace with the one told γ*",
        "studies.learning:claims",
        swap("ratio <= PACE", "True"),
        f"{HEADLINES}::test_a_default_that_falls_behind_or_breaks_the_constraint_fails_its_claim",
    ),
)

ROWS = "tests/agents/relatives/test_bandits.py"
LEAGUE_TESTS = "tests/studies/test_league.py"
APART = "test_worlds_that_break_an_assumption_are_neither_averaged_in_nor_filled"

LEAGUE = (
    Fault(
        "league: a number may stand on another dot",
        "studies.league:_number_dots",
        swap("(np.abs(places[:, None] - taken) < room).all(axis=2).sum()", "0"),
        "tests/studies/test_league.py::test_numbers_of_dots_overlap_neither_each_other_nor_a_dot",
    ),
    Fault(
        "league: ROFUL plays the length it hopes for",
        "roful:Roful.choose",
        swap("np.minimum(length, ...)", "length"),
        f"{ROWS}::test_the_choice_is_the_papers[1-Roful-literal_roful]",
    ),
    Fault(
        "league: a rival's bound is its estimate",
        "genop:GenOp.choose",
        swap("rays.cost + bonus", "rays.cost"),
        f"{ROWS}::test_the_choice_is_the_papers[0-GenOp-literal_genop]",
    ),
    Fault(
        "league: rounding may lift a bound over the threshold",
        "relatives.bandit:length_under",
        swap("DOWN * threshold", "1.0 * threshold"),
        f"{ROWS}::test_rounding_never_lifts_a_cut_ray_over_the_threshold",
    ),
    Fault(
        "league: a bound that is no number passes",
        "relatives.bandit:certified",
        swap("(np.asarray(pick.length) > 0.0) & (pick.bound <= threshold[..., 0])", "np.asarray(pick.length) > 0.0"),
        f"{ROWS}::test_a_pick_whose_bound_is_over_the_threshold_is_not_played",
    ),
    Fault(
        "league: a policy that is no number is drawn from",
        "relatives.episodic:EpisodicAgent.make_plan",
        swap("np.isfinite(policy).all(axis=2, keepdims=True)", "True"),
        "tests/agents/relatives/test_episodic.py::test_a_policy_that_is_no_number_is_the_safe_one",
    ),
    Fault(
        "league: a scale is called a theorem",
        "relatives.bandit:RayBandit.origin",
        swap("self.config.scale == 1.0", "True"),
        f"{ROWS}::test_a_scale_multiplies_the_radius_and_is_called_tuned[Roful]",
    ),
    Fault(
        "league: HP-UCB leaves no room for the noise",
        "hp_ucb:HpUcb.choose",
        swap("rays.cost + self.radius(rays) * rays.width + self.room", "rays.cost + self.radius(rays) * rays.width"),
        f"{ROWS}::test_hp_ucb_leaves_room_for_the_noise_and_learns_per_unit",
    ),
    Fault(
        "league: measured costs have the same noise at every length",
        "linear_mdp:LinearMDP.play",
        never("self.problem.noise_scales and isinstance(action, StarAction)"),
        "tests/lab/worlds/test_contexts.py::test_the_noise_of_a_cost_grows_with_the_length[0.1]",
    ),
    Fault(
        "league: rivals are tuned by regret alone",
        "league:tuned_scales",
        swap("float(np.maximum(broken(cell) - allowed(cell), 0.0).sum())", "0.0"),
        f"{LEAGUE_TESTS}::test_the_tuned_scale_has_the_fewest_violations_and_then_the_least_regret",
    ),
    Fault(
        "league: a dot is filled where an assumption is broken",
        "studies.league:bounded",
        swap("not one['breaks']", "True"),
        f"{LEAGUE_TESTS}::{APART}",
    ),
    Fault(
        "league: worlds that break an assumption are averaged in",
        "studies.league:groups",
        swap("[one for one in rows if not one['breaks']]", "rows"),
        f"{LEAGUE_TESTS}::{APART}",
    ),
    Fault(
        "league: a rule from memory has no label",
        "studies.league:_remembered",
        swap("row_for(method).memory", "''"),
        f"{LEAGUE_TESTS}::test_rules_from_memory_are_labelled_in_every_table",
    ),
    Fault(
        "league: a promise for an episode is judged without its next states",
        "planning:policy_costs",
        swap("world.true_mu[step] @ costs[step + 1]", "0.0"),
        f"{LEAGUE_TESTS}::test_expected_episode_costs_are_what_playing_costs_on_average",
    ),
)

CANARY, UPLIFT = "tests/live/test_canary.py", "tests/live/test_uplift.py"

COMPARED = (
    Fault(
        "uplift: what is seen is weighed by the other arm's propensity",
        "uplift:pseudo_outcome",
        swap("(value - first) / share", "(value - first) / (1.0 - share)"),
        "tests/statistical/test_uplift_coverage.py::test_the_interval_holds_at_all_times[yes or no, a tenth]",
    ),
    Fault(
        "canary: less than the share p that is logged is drawn",
        "canary:plays_proposal",
        swap("coin_of(...) < share", 'coin_of(f"canary:{id}") < 0.85 * share'),
        f"{CANARY}::test_the_draw_is_uniform_in_the_id_and_independent_of_the_coin_of_mixtures",
    ),
    Fault(
        "canary: it is drawn with the coin of mixtures",
        "canary:plays_proposal",
        swap("coin_of(...)", "coin_of(id)"),
        f"{CANARY}::test_the_draw_is_uniform_in_the_id_and_independent_of_the_coin_of_mixtures",
    ),
    Fault(
        "canary: what a guard forbids is drawn all the same",
        "judge:judge",
        swap("proposal is not None and not proposal.is_baseline and not objection[0]", "proposal is not None"),
        f"{LIVE}/test_guards.py::test_the_rate_guard_holds_in_every_window[guarded]",
    ),
    Fault(
        "canary: only the proposal is withheld",
        "handing_out:HandingOut._handed_out",
        swap("made.is_baseline and made.canary is None", "made.is_baseline"),
        f"{CANARY}::test_a_stop_in_flight_withholds_both_arms",
    ),
    Fault(
        "canary: what did not leave is compared",
        "ledger:Ledger._withheld",
        drop("self.uplift.withdraw(note.decision_id)"),
        f"{CANARY}::test_what_is_compared_is_what_left_and_its_propensities_are_right",
    ),
    Fault(
        "canary: outcomes are compared as they come",
        "canary:Trials._due",
        swap(
            "while self._queue and next(iter(self._queue.values())).settled:\n    due.append(...)",
            "for id in [id for id in self._queue if self._queue[id].settled]:\n    due.append(self._queue.pop(id))",
        ),
        f"{CANARY}::test_outcomes_are_compared_in_the_order_of_their_decisions",
    ),
    Fault(
        "uplift: what never came counts as the middle",
        "uplift:Gain.add",
        swap("(0.0, 1.0) if trial.played else (1.0, 0.0)", "(0.5, 0.5)"),
        f"{UPLIFT}::test_what_never_came_counts_as_the_worst_at_each_end",
    ),
    Fault(
        "uplift: the reach of a pseudo-outcome is not looked at",
        "uplift:Side.add",
        swap("max(guess - least, 1.0)", "1.0"),
        f"{UPLIFT}::test_each_factor_of_the_supermartingale_has_a_mean_of_at_most_one",
    ),
    Fault(
        "uplift: every comparison of a log gets the whole α",
        "uplift:Uplift.level",
        swap("2.0 * len(RATES) * self.number * (self.number + 1) / ERROR", "2.0 * len(RATES) / ERROR"),
        f"{UPLIFT}::test_the_intervals_of_all_comparisons_of_a_log_hold_together",
    ),
    Fault(
        "uplift: live mode does not ask for it",
        "promotion:unmet",
        never('mode == "live" and criteria.uplift is not None'),
        f"{CANARY}::test_promotion_asks_for_a_gain_and_a_person_may_override_it",
    ),
)

MERGE = "tests/live/test_merge.py"

MERGED = (
    Fault(
        "merge: what came is taken, not a prefix of all",
        "live.merge:take",
        swap("break", "continue"),
        f"{MERGE}::test_every_site_waits_for_the_first_open_decision_of_any",
    ),
    Fault(
        "merge: a decision counts as often as its log is given",
        "live.merge:take",
        swap('f"merged:{names[item.site]}:{item.id}"', 'f"merged:{item.site}:{item.id}"'),
        f"{MERGE}::test_a_copy_of_a_log_counts_once",
    ),
    Fault(
        "merge: a log is taken into itself",
        "live.merge:merge",
        swap("item.id not in own", "True"),
        "tests/live/test_merge.py::test_what_a_log_has_decided_itself_counts_once_when_it_or_a_copy_is_merged_into_it",
    ),
    Fault(
        "merge: outcomes of any age count as of now",
        "warm_start:keyed_drafts",
        drop("_refuse_drift(problem)"),
        "tests/live/test_merge.py::test_where_costs_drift_nothing_is_merged",
    ),
    Fault(
        "comparison: bounds that have expired are played",
        "comparison:compare",
        swap('problem.drift_per == "decision"', "False"),
        "tests/gym/test_comparison.py::test_where_costs_drift_with_each_decision_nothing_is_played_for_a_comparison",
    ),
    Fault(
        "merge: sites with other features are taken",
        "live.merge:_check_feature",
        never("not np.allclose(phi, seen.feature, rtol=1e-9, atol=1e-12 * problem.feature_norm)"),
        f"{MERGE}::test_sites_with_another_problem_or_other_features_are_refused",
    ),
)

EVALUATE = "tests/check/test_evaluate.py"

EVALUATED = (
    Fault(
        "evaluate: a log without overlap is weighted",
        "check.evaluate:_no_overlap",
        never("never.any()"),
        f"{EVALUATE}::test_a_log_without_overlap_is_refused_with_the_reason",
    ),
    Fault(
        "evaluate: weights that do not add up pass",
        "check.evaluate:_no_overlap",
        swap("abs(mean - 1.0)", "mean - 1.0"),
        f"{EVALUATE}::test_wrong_propensities_are_noticed_by_the_weights_mean",
    ),
    Fault(
        "evaluate: one decision may decide everything",
        "check.evaluate:_no_overlap",
        never("(effective := _effective(weights)) < max(2.0, min(FEW, len(weights) / 10.0))"),
        f"{EVALUATE}::test_a_log_in_which_one_decision_would_decide_is_refused",
    ),
    Fault(
        "evaluate: the policy's probability is not weighed by the log's",
        "check.evaluate:evaluate",
        swap("rows.target / rows.propensity", "rows.target"),
        f"{EVALUATE}::test_estimates_find_the_known_value_of_a_simulated_policy",
    ),
    Fault(
        "evaluate: the linear value forgets how little is known",
        "check.evaluate:linear_value",
        swap("beta * sqrt(...)", "noise * sqrt(float(x @ np.linalg.solve(gram, x)))"),
        f"{EVALUATE}::test_the_linear_value_holds_for_greedy_logs_without_any_overlap",
    ),
)

ARCHIVE = "tests/live/test_archive.py"

KEPT = (
    Fault(
        "archive: decisions that are open leave, too",
        "live.archive:_gone",
        swap("entry.seq not in ids or entry.seq in ended", "True"),
        f"{ARCHIVE}::test_what_is_open_is_recorded_later_and_then_leaves[sqlite]",
    ),
    Fault(
        "archive: rows are deleted before readers know where they went",
        "live.archive:archive",
        swap("store.set_archived(last, folder)", "pass"),
        f"{ARCHIVE}::test_old_entries_move_to_files_and_everything_still_reaches_them[sqlite]",
    ),
    Fault(
        "archive: entries leave that no snapshot stands for",
        "live.archive:_write_files",
        never("last >= checkpoint"),
        f"{ARCHIVE}::test_only_old_entries_leave_and_the_last_file_full_stays",
    ),
    Fault(
        "archive: a second outcome, after the first was archived, counts",
        "live.replica:Replica.apply",
        never("isinstance(event, OutcomeRecorded) and not self.learner.agent.order.is_open(event.decision_id)"),
        f"{ARCHIVE}::test_an_outcome_of_what_was_archived_counts_for_nothing_however_it_comes",
    ),
    Fault(
        "archive: what is at hand is taken for open",
        "live.outcomes:Outcomes.decision",
        swap("found is not None and self._follower.replica.learner.agent.order.is_open(id)", "found is not None"),
        f"{ARCHIVE}::test_an_outcome_of_what_was_archived_counts_for_nothing_however_it_comes",
    ),
    Fault(
        "archive: any signature will do",
        "live.archive:checker",
        swap("hmac.compare_digest(...)", "True"),
        f"{ARCHIVE}::test_an_archive_without_the_keys_signature_is_found",
    ),
    Fault(
        "archive: what remains in the log is not compared with the archive",
        "live.log.chain:_check_keys",
        never("entry != entries[entry.seq - first]"),
        f"{ARCHIVE}::test_what_remains_in_the_log_must_be_what_the_archive_holds",
    ),
    Fault(
        "backup: a copy goes on as if nothing were missing",
        "live.backup:backup",
        drop("stop(with_stop, by=..., why=...)"),
        "tests/live/test_backup.py::test_a_restored_copy_plays_a_0_until_somebody_resumes",
    ),
)

REAL = "tests/lab/real/test_play.py"

REAL_WORLDS = (
    Fault(
        "real worlds: the observed cost is judged where the true one is known",
        "lab.real.play:Recorder._write",
        swap('info.get("true_cost", info["cost"])', 'info["cost"]'),
        f"{REAL}::test_a_violation_is_a_true_cost_over_its_threshold",
    ),
    Fault(
        "real worlds: a cost that is not a number is no violation",
        "lab.real.play:Recorder._write",
        swap("not (excess <= 0.0).all()", "(excess > 0.0).any()"),
        f"{REAL}::test_a_violation_is_a_true_cost_over_its_threshold",
    ),
    Fault(
        "real worlds: methods start from other states",
        "lab.real.play:Recorder.reset",
        swap("[self.seed, self.episode]", "[self.seed, self.episode, seed or 0]"),
        f"{REAL}::test_an_episode_starts_alike_for_every_method_whatever_seed_it_asks_for",
    ),
    Fault(
        "real worlds: a zone that is too cold costs nothing",
        "lab.real.buildings:SetPoints.step",
        swap("[errors, -errors]", "[errors, errors]"),
        "tests/lab/real/test_buildings.py::test_letting_the_zones_go_saves_their_power_less_what_was_borrowed",
    ),
    Fault(
        "real worlds: heat borrowed from the building counts as saved",
        "lab.real.buildings:Plant.stored",
        swap("self.wanted(needed) * errors", "0.0 * errors"),
        "tests/lab/real/test_buildings.py::test_letting_the_zones_go_saves_their_power_less_what_was_borrowed",
    ),
    Fault(
        "real worlds: the meter has no noise",
        "lab.real.bolus:Meals.step",
        swap("true_cost + METER_NOISE * self.np_random.normal(size=2)", "true_cost"),
        "tests/lab/real/test_bolus.py::test_a_meal_costs_what_the_meter_reads_and_the_truth_is_told_apart",
    ),
    Fault(
        "real worlds: the first run is drawn",
        "studies.real:shown_seed",
        swap("broken[(len(broken) - 1) // 2][1] if broken else min(both)", "min(both)"),
        f"{REAL}::test_the_run_that_is_drawn_shows_what_the_sentence_says",
    ),
)

FAULTS = (
    SAFE_SETS + RADII + PLANS + KNOWN_FACTS + LOST + DECLARED + DRIFTS + LIKELIHOOD + ROUNDING + AGENTS + LAKES
    + LEAN_PLANS + MIXTURES + LIVE_USE + COMPARED + EVALUATED + MERGED + KEPT + WIZARD + CLAIMS + LEAGUE + REAL_WORLDS
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(FAULTS, __doc__))
