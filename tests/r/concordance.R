# Concordance: ties, weights, delayed entry, start-stop rows.
source("common.R")
repeated <- trial[rep(seq_len(nrow(trial)), trial$count), ]
value <- function(formula, data, ...) list(concordance = unname(concordance(formula, data, reverse = TRUE, ...)$concordance))
trial$risk <- floor(10 * trial$marker) / 10                    # tied risks
repeated$risk <- floor(10 * repeated$marker) / 10
add("harrell", "Harrell's concordance (ties in time and risk)", "trial", value(Surv(time, status) ~ risk, trial))
add("harrell-counts", "Harrell's concordance (whole weights)", "trial, rows repeated",
    value(Surv(time, status) ~ risk, repeated))
add("harrell-entry", "Harrell's concordance (delayed entry)", "trial", value(Surv(entry, time, status) ~ risk, trial))
add("harrell-spells", "Harrell's concordance (time-varying covariate, start-stop rows)", "spells",
    value(Surv(start, stop, event) ~ x, spells))
add("harrell-none", "Harrell's concordance of equal predictions", "trial",
    value(Surv(time, status) ~ rep(1, 240), trial))
add("uno", "Uno's concordance, censoring from the same rows", "trial, ties broken", {
  trial$untied <- trial$time + seq_len(nrow(trial)) / 1e4
  value(Surv(untied, status) ~ risk, trial, timewt = "n/G2")
})
add("heart", "Concordance of Cox regression on the heart transplant data (start-stop rows)", "survival::heart", {
  fit <- coxph(Surv(start, stop, event) ~ age + year + surgery + transplant, heart)
  list(concordance = unname(concordance(fit)$concordance))
})
write_record("concordance.json")
