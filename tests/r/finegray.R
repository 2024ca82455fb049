# Competing risks: Fine and Gray's regression, by finegray() and coxph(), and by cmprsk; cause-specific Cox regression.
source("common.R")
trial$state <- factor(trial$cause, 0:2, c("censored", "relapse", "death"))
trial$id <- seq_len(nrow(trial))
repeated <- trial[rep(seq_len(nrow(trial)), trial$count), ]
repeated$id <- seq_len(nrow(repeated))
tight <- coxph.control(eps = 1e-12, toler.chol = 1e-13, iter.max = 100)

finegray_rows <- function(data, cause) finegray(Surv(time, state) ~ ., data, etype = cause)
# finegray() weights rows, but not the rows that estimate the censoring distribution G; here G is weighted as well
weighted_rows <- function(data, cause) {
  place <- match(data$time, sort(unique(data$time))) - 0.2 * (data$cause > 0)     # events come before censorings
  G <- survfit(Surv(place, cause == 0) ~ 1, data, weights = weight)
  before <- function(t) {
    at <- findInterval(match(t, sort(unique(data$time))) - 0.5, G$time)
    c(1, G$surv)[at + 1]
  }
  times <- sort(unique(data$time[data$state == cause]))
  parts <- lapply(seq_len(nrow(data)), function(i) {
    row <- data[i, ]
    later <- if (row$cause > 0 && row$state != cause) times[times > row$time] else numeric(0)
    ends <- c(row$time, later)
    cbind(row[rep(1, length(ends)), ], fgstart = c(0, ends[-length(ends)]), fgstop = ends,
          fgstatus = as.integer(row$state == cause), fgwt = row$weight * c(1, before(later) / before(row$time)))
  })
  do.call(rbind, parts)
}

terms <- ~ arm + age + marker
model <- function(data, cause, cluster = "id", expand = finegray_rows, formula = terms) {
  long <- expand(data, cause)
  formula <- update(formula, Surv(fgstart, fgstop, fgstatus) ~ .)
  environment(formula) <- environment()
  coxph(formula, long, weights = fgwt, cluster = long[[cluster]], ties = "breslow", control = tight)
}
fit <- function(...) {
  made <- model(...)
  list(coef = unname(coef(made)), standard_error = unname(sqrt(diag(vcov(made)))))
}
both <- function(...) {
  parts <- lapply(c("relapse", "death"), function(cause) fit(cause = cause, ...))
  list(coef = t(sapply(parts, `[[`, "coef")), standard_error = t(sapply(parts, `[[`, "standard_error")))
}
what <- "Fine-Gray regression of both causes: coefficients and robust standard errors"
add("finegray", what, "trial", both(trial))
add("finegray-counts", paste0(what, " (whole weights)"), "trial, rows repeated", both(repeated))
add("finegray-groups", paste0(what, " (robust by subject)"), "trial", both(trial, cluster = "subject"))
add("finegray-counts-groups", paste0(what, " (whole weights, robust by subject)"), "trial, rows repeated",
    both(repeated, cluster = "subject"))
add("finegray-separation", "Fine-Gray regression with a column that is constant among events: the other columns", "trial",
    lapply(suppressWarnings(both(trial, formula = ~ arm + age + marker + carrier)), function(values) values[, 1:4]))

add("finegray-weights", paste0(what, " (sampling weights, also of the censoring distribution)"), "trial",
    both(trial, expand = weighted_rows))
add("finegray-weights-groups", paste0(what, " (sampling weights, robust by subject)"), "trial",
    both(trial, cluster = "subject", expand = weighted_rows))

# summary(coxph()): the rows of finegray() in the risk set of an event are compared with it, with their weights
concordances <- function(...) {
  found <- sapply(c("relapse", "death"), function(cause) summary(model(cause = cause, ...))$concordance)
  list(concordance = unname(found[1, ]), standard_error = unname(found[2, ]))
}
what <- "Fine-Gray regression of both causes: concordance and its standard error"
add("finegray-concordance", what, "trial", concordances(trial))
add("finegray-concordance-counts", paste0(what, " (whole weights)"), "trial, rows repeated", concordances(repeated))
add("finegray-concordance-weights-groups", paste0(what, " (sampling weights, robust by subject)"), "trial",
    concordances(trial, cluster = "subject", expand = weighted_rows))

# cmprsk counts a row with an event as at risk of censoring at the same time, finegray() does not: without ties
crr <- function() {
  time <- trial$time + seq_len(nrow(trial)) / 1e4
  x <- model.matrix(~ arm + age + marker, trial)[, -1]
  made <- cmprsk::crr(time, trial$cause, x, failcode = 1, cencode = 0, gtol = 1e-12)
  at <- predict(made, x[1:3, ])
  steps <- findInterval(c(0.6, 1.1, 2.1, 4.1, 8.1), at[, 1])
  list(coef = unname(made$coef), log_likelihood = made$loglik, incidence = unname(rbind(0, at[, -1])[steps + 1, ]))
}
add("crr", "Fine-Gray regression of cause 1: coefficients, log-likelihood, incidence of three subjects", "trial, ties broken", crr())

add("cause-specific", "Cause-specific Cox regression: coefficients and standard errors of both causes", "trial", {
  parts <- lapply(1:2, function(k) coxph(Surv(time, cause == k) ~ arm + age + marker, trial, control = tight))
  list(coef = t(unname(sapply(parts, coef))), standard_error = t(unname(sapply(parts, function(f) sqrt(diag(vcov(f)))))))
})
write_record("finegray.json", c("survival", "cmprsk"))
