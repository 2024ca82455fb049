# Kaplan-Meier, Nelson-Aalen and Aalen-Johansen with confidence bands, and tests between groups.
source("common.R")
repeated <- trial[rep(seq_len(nrow(trial)), trial$count), ]
repeated$id <- seq_len(nrow(repeated))
trial$id <- seq_len(nrow(trial))
survival <- Surv(time, status) ~ 1

jumps <- function(fit) fit$n.event > 0
band <- function(fit) {
  at <- jumps(fit)
  list(estimate = fit$surv[at], lower = fit$lower[at], upper = fit$upper[at])
}
fitted <- function(formula, data, ...) do.call(survfit, list(formula, data = data, ...))
kinds <- function(...) {
  made <- lapply(c("log-log", "log", "plain"), function(kind) band(fitted(..., conf.type = kind)))
  list(estimate = made[[1]]$estimate, log_log_lower = made[[1]]$lower, log_log_upper = made[[1]]$upper,
       log_lower = made[[2]]$lower, log_upper = made[[2]]$upper,
       plain_lower = made[[3]]$lower, plain_upper = made[[3]]$upper)
}
km <- "Kaplan-Meier with log-log, log and plain limits"
add("km", km, "trial", kinds(survival, trial))
add("km-entry", paste0(km, " (delayed entry)"), "trial", kinds(Surv(entry, time, status) ~ 1, trial))
add("km-counts", paste0(km, " (whole weights)"), "trial, rows repeated", kinds(survival, repeated))
add("km-weights", paste0(km, " (sampling weights, robust)"), "trial",
    kinds(survival, trial, weights = trial$weight, cluster = trial$id))
add("km-groups", paste0(km, " (robust by subject)"), "trial", kinds(survival, trial, cluster = trial$subject))
add("km-entry-weights-groups", paste0(km, " (delayed entry, weights, robust by subject)"), "trial",
    kinds(Surv(entry, time, status) ~ 1, trial, weights = trial$weight, cluster = trial$subject))

na <- function(...) {
  fit <- fitted(...)
  at <- jumps(fit)
  list(estimate = fit$cumhaz[at], standard_error = fit$std.chaz[at])
}
add("nelson-aalen", "Nelson-Aalen with standard errors", "trial", na(survival, trial))
add("nelson-aalen-weights", "Nelson-Aalen with standard errors (sampling weights, robust)", "trial",
    na(survival, trial, weights = trial$weight, cluster = trial$id))
add("nelson-aalen-groups", "Nelson-Aalen with standard errors (robust by subject)", "trial",
    na(survival, trial, cluster = trial$subject))

# the infinitesimal jackknife of survfit() for several states
aj <- function(...) {
  fit <- fitted(...)
  at <- rowSums(fit$n.event) > 0
  list(incidence = unname(fit$pstate[at, 2:3]), standard_error = unname(fit$std.err[at, 2:3]))
}
trial$state <- factor(trial$cause, 0:2, c("censored", "relapse", "death"))
repeated$state <- factor(repeated$cause, 0:2, c("censored", "relapse", "death"))
add("aalen-johansen-weights", "Aalen-Johansen with robust standard errors (sampling weights)", "trial",
    aj(Surv(time, state) ~ 1, trial, weights = trial$weight, id = trial$id))
add("aalen-johansen-groups", "Aalen-Johansen with robust standard errors (by subject, from the influence of rows)", "trial", {
  fit <- survfit(Surv(time, state) ~ 1, trial, id = id, influence = TRUE)
  at <- which(rowSums(fit$n.event) > 0)
  errors <- sapply(2:3, function(k) sqrt(colSums(rowsum(fit$influence.pstate[, 1 + at, k], trial$subject)^2)))
  list(incidence = unname(fit$pstate[at, 2:3]), standard_error = unname(errors))
})
add("aalen-johansen-entry", "Aalen-Johansen with robust standard errors (delayed entry, sampling weights)", "trial",
    aj(Surv(entry, time, state) ~ 1, trial, weights = trial$weight, id = trial$id))
add("aalen-johansen", "Aalen-Johansen with the delta-method variance of Aalen (cmprsk's cuminc)", "trial", {
  fit <- cmprsk::cuminc(trial$time, trial$cause)
  at <- cmprsk::timepoints(fit, sort(unique(trial$time[trial$cause > 0])))
  list(incidence = t(unname(at$est)))
})

# ---------------------------------------------------------------- tests
diff <- function(formula, data) {
  made <- survdiff(formula, data)
  list(statistic = made$chisq, expected = if (is.matrix(made$exp)) rowSums(made$exp) else unname(made$exp))
}
add("logrank", "Log-rank test of three groups", "trial", diff(Surv(time, status) ~ arm, trial))
add("logrank-strata", "Stratified log-rank test", "trial", diff(Surv(time, status) ~ arm + strata(site), trial))
add("logrank-counts", "Log-rank test (whole weights)", "trial, rows repeated", diff(Surv(time, status) ~ arm, repeated))
add("logrank-robust", "Log-rank test with sampling weights: the robust score test of Cox regression", "trial", {
  fit <- coxph(Surv(time, status) ~ arm, trial, weights = weight, robust = TRUE, ties = "breslow", init = c(0, 0),
               control = coxph.control(iter.max = 0))
  score <- residuals(fit, "score", weighted = TRUE)
  list(statistic = drop(colSums(score) %*% solve(crossprod(score)) %*% colSums(score)))
})

# Weighted tests from their definition (Klein and Moeschberger 2003, section 7.3), with the exact hypergeometric
# variance; survdiff(rho = 1) weights by the pooled Kaplan-Meier estimate just before each time.
weighted <- function(data, w) {
  times <- sort(unique(data$time[data$status == 1])); groups <- levels(data$arm)
  before <- c(1, summary(survfit(Surv(time, status) ~ 1, data), times = times)$surv)[seq_along(times)]
  u <- 0; v <- 0
  for (j in seq_along(times)) {
    n <- sapply(groups, function(g) sum(data$arm == g & data$time >= times[j]))
    d <- sapply(groups, function(g) sum(data$arm == g & data$time == times[j] & data$status == 1))
    k <- w(sum(n), before[j]); share <- n / sum(n)
    u <- u + k * (d - sum(d) * share)
    if (sum(n) > 1)
      v <- v + k^2 * sum(d) * (sum(n) - sum(d)) / (sum(n) - 1) * (diag(share) - outer(share, share))
  }
  list(statistic = drop(u[-3] %*% solve(v[-3, -3]) %*% u[-3]))
}
add("gehan", "Gehan-Breslow test", "trial", weighted(trial, function(n, s) n))
add("tarone-ware", "Tarone-Ware test", "trial", weighted(trial, function(n, s) sqrt(n)))
add("fleming-harrington-1-0", "Fleming-Harrington test, rho 1 (survdiff)", "trial",
    list(statistic = survdiff(Surv(time, status) ~ arm, trial, rho = 1)$chisq))
add("fleming-harrington-0-1", "Fleming-Harrington test, gamma 1", "trial", weighted(trial, function(n, s) 1 - s))

# ---------------------------------------------------------------- restricted means
rmst <- function(fit) {
  made <- summary(fit, rmean = 6)$table
  list(restricted_mean = unname(made[, "rmean"]), standard_error = unname(made[, "se(rmean)"]))
}
add("restricted-mean", "Restricted means up to 6 of three groups", "trial", rmst(survfit(Surv(time, status) ~ arm, trial)))
write_record("curves.json", c("survival", "cmprsk"))
