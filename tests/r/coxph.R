# Cox regression: coefficients, standard errors, baselines, tests of proportional hazards.
source("common.R")
formula <- Surv(time, status) ~ arm + age + marker
entered <- Surv(entry, time, status) ~ arm + age + marker
repeated <- trial[rep(seq_len(nrow(trial)), trial$count), ]
tight <- coxph.control(eps = 1e-12, toler.chol = 1e-13, iter.max = 100)

estimates <- function(fit) {
  list(coef = unname(coef(fit)), standard_error = unname(sqrt(diag(vcov(fit)))), log_likelihood = fit$loglik[2])
}
cox <- "Cox regression: coefficients, standard errors, log-likelihood"
add("cox-efron", paste0(cox, " (ties by Efron)"), "trial", estimates(coxph(formula, trial, control = tight)))
add("cox-breslow", paste0(cox, " (ties by Breslow)"), "trial",
    estimates(coxph(formula, trial, ties = "breslow", control = tight)))
add("cox-entry", paste0(cox, " (delayed entry)"), "trial", estimates(coxph(entered, trial, control = tight)))
add("cox-strata", paste0(cox, " (delayed entry and strata)"), "trial",
    estimates(coxph(update(entered, ~ . + strata(site)), trial, control = tight)))
add("cox-counts", paste0(cox, " (whole weights)"), "trial, rows repeated",
    estimates(coxph(formula, repeated, control = tight)))
add("cox-weights", paste0(cox, " (sampling weights, robust)"), "trial",
    estimates(coxph(formula, trial, weights = weight, robust = TRUE, control = tight)))
add("cox-groups", paste0(cox, " (weights, delayed entry, robust by subject)"), "trial",
    estimates(coxph(entered, trial, weights = weight, cluster = subject, control = tight)))
add("cox-counts-groups", paste0(cox, " (whole weights, robust by subject)"), "trial, rows repeated",
    estimates(coxph(formula, repeated, cluster = subject, control = tight)))
add("cox-separation", "Cox regression with a column that is constant among events: the other columns", "trial", {
  fit <- suppressWarnings(coxph(update(formula, ~ . + carrier), trial, control = coxph.control(eps = 1e-14, iter.max = 200)))
  list(coef = unname(coef(fit))[1:4], standard_error = unname(sqrt(diag(vcov(fit))))[1:4])
})
add("cox-complete-cases", "Cox regression on complete cases (na.omit)", "trial",
    estimates(coxph(update(formula, ~ . + bmi), trial, control = tight)))

# summary(coxph()): tests that all coefficients are zero, Wald tests per term, concordance, AIC and BIC
summary_values <- function(fit) {
  made <- summary(fit)
  per_term <- sapply(fit$assign, function(j) drop(coef(fit)[j] %*% solve(vcov(fit)[j, j], coef(fit)[j])))
  statistics <- c(made$logtest[["test"]], fit$wald.test, made$sctest[["test"]], made$robscore[["test"]])
  list(tests = unname(statistics), terms = unname(per_term), null_log_likelihood = fit$loglik[1], aic = AIC(fit),
       bic = BIC(fit), concordance = unname(made$concordance))
}
tests <- "Cox regression: likelihood ratio, Wald and score tests, Wald tests per term, concordance with standard error, AIC, BIC"
add("cox-summary", tests, "trial", summary_values(coxph(formula, trial, control = tight)))
add("cox-summary-breslow", paste0(tests, " (Breslow)"), "trial",
    summary_values(coxph(formula, trial, ties = "breslow", control = tight)))
add("cox-summary-entry-strata", paste0(tests, " (delayed entry and strata)"), "trial",
    summary_values(coxph(update(entered, ~ . + strata(site)), trial, control = tight)))
add("cox-summary-counts", paste0(tests, " (whole weights)"), "trial, rows repeated",
    summary_values(coxph(formula, repeated, control = tight)))
add("cox-summary-groups", paste0(tests, " (weights, strata, robust by subject)"), "trial",
    summary_values(coxph(update(entered, ~ . + strata(site)), trial, weights = weight, cluster = subject, control = tight)))
add("cox-nested", "Likelihood ratio test of two nested Cox regressions (anova)", "trial", {
  made <- anova(coxph(Surv(time, status) ~ age, trial, control = tight), coxph(formula, trial, control = tight))
  list(log_likelihood = made$loglik, statistic = made$Chisq[2], df = made$Df[2], p = made[2, 4])
})

# Firth: the partial likelihood (Breslow) plus half of the log determinant of its information, by BFGS and Newton steps
firth <- function(data) {
  x <- model.matrix(~ age + carrier, data)[, -1]
  x <- sweep(x, 2, colMeans(x))
  events <- which(data$status == 1)
  penalised <- function(b) {
    risk <- exp(drop(x %*% b))
    value <- 0; information <- matrix(0, 2, 2)
    for (i in events) {
      at_risk <- data$time >= data$time[i]
      p <- risk[at_risk] / sum(risk[at_risk]); z <- x[at_risk, , drop = FALSE]
      m <- colSums(p * z)
      value <- value + sum(x[i, ] * b) - log(sum(risk[at_risk]))
      information <- information + crossprod(z * p, z) - outer(m, m)
    }
    list(value = value + 0.5 * as.numeric(determinant(information)$modulus), information = information)
  }
  at <- optim(c(0, 0), function(b) -penalised(b)$value, method = "BFGS", control = list(reltol = 1e-16))$par
  for (k in 1:4) {                                   # to the maximum, with derivatives by central differences
    h <- c(1e-3, 1e-2)
    f <- function(i, j) penalised(at + c(i, j) * h)$value
    g <- c((f(-2, 0) - 8 * f(-1, 0) + 8 * f(1, 0) - f(2, 0)) / (12 * h[1]),
           (f(0, -2) - 8 * f(0, -1) + 8 * f(0, 1) - f(0, 2)) / (12 * h[2]))
    hess <- matrix(c((f(1, 0) - 2 * f(0, 0) + f(-1, 0)) / h[1]^2, rep((f(1, 1) - f(1, -1) - f(-1, 1) + f(-1, -1)) / (4 * h[1] * h[2]), 2),
                     (f(0, 1) - 2 * f(0, 0) + f(0, -1)) / h[2]^2), 2)
    at <- at - solve(hess, g)
  }
  list(coef = unname(at), standard_error = unname(sqrt(diag(solve(penalised(at)$information)))))
}
add("cox-firth", "Cox regression with Firth's penalty (optimised in R; ties by Breslow)", "trial", firth(trial))

curve <- function(fit, ...) {
  made <- survfit(fit, newdata = trial[1:3, ], ...)
  at <- summary(made, times = c(0.5, 1, 2, 4, 8), extend = TRUE)
  list(survival = unname(at$surv))
}
baseline <- "Survival of three subjects from Cox regression"
add("baseline-efron", paste0(baseline, " (Efron)"), "trial", curve(coxph(formula, trial, control = tight)))
add("baseline-breslow", paste0(baseline, " (Breslow)"), "trial",
    curve(coxph(formula, trial, ties = "breslow", control = tight)))
add("baseline-entry", paste0(baseline, " (delayed entry, Efron)"), "trial", curve(coxph(entered, trial, control = tight)))
add("baseline-weights", paste0(baseline, " (sampling weights, Efron)"), "trial",
    curve(coxph(formula, trial, weights = weight, control = tight)))
add("baseline-counts", paste0(baseline, " (whole weights, Efron)"), "trial, rows repeated",
    curve(coxph(formula, repeated, control = tight)))
add("baseline-strata", paste0(baseline, " (strata, Efron)"), "trial", {
  fit <- coxph(update(formula, ~ . + strata(site)), trial, control = tight)
  at <- c(0.5, 1, 2, 4, 8)
  list(survival = sapply(1:3, function(i) summary(survfit(fit, newdata = trial[i, ]), times = at, extend = TRUE)$surv))
})

limits <- function(fit, rows = 1:3) {
  made <- lapply(rows, function(i) {
    curve <- survfit(fit, newdata = trial[i, ], conf.type = "log-log")
    at <- summary(curve, times = c(0.5, 1, 2, 4, 8), extend = TRUE)
    list(at = rbind(at$lower, at$upper), median = unlist(quantile(curve, 0.5)[c("lower", "upper")]))
  })
  median <- sapply(made, `[[`, "median")
  median[is.na(median)] <- Inf
  list(limits = lapply(made, `[[`, "at"), median = unname(median))
}
band <- "Limits (log-log) of survival and median of three subjects from Cox regression"
add("limits-efron", paste0(band, " (Efron)"), "trial", limits(coxph(formula, trial, control = tight)))
add("limits-breslow", paste0(band, " (Breslow)"), "trial", limits(coxph(formula, trial, ties = "breslow", control = tight)))
add("limits-entry", paste0(band, " (delayed entry)"), "trial", limits(coxph(entered, trial, control = tight)))
add("limits-counts", paste0(band, " (whole weights)"), "trial, rows repeated", limits(coxph(formula, repeated, control = tight)))
add("limits-groups", paste0(band, " (weights, delayed entry, robust by subject)"), "trial",
    limits(coxph(entered, trial, weights = weight, cluster = subject, control = tight)))
add("limits-strata", paste0(band, " (strata)"), "trial", limits(coxph(update(formula, ~ . + strata(site)), trial, control = tight)))

# Restricted mean by the delta method, from sums over risk sets (Breslow): R's survfit has no such variance for coxph
restricted <- function(fit, horizon) {
  x <- model.matrix(~ arm + age + marker, trial)[, -1]
  risk <- exp(drop(x %*% coef(fit)))
  times <- sort(unique(trial$time[trial$status == 1 & trial$time < horizon]))
  s0 <- sapply(times, function(t) sum(risk[trial$time >= t]))
  d <- sapply(times, function(t) sum(trial$status[trial$time == t]))
  centre <- t(sapply(times, function(t) colSums((risk * x)[trial$time >= t, ]))) / s0
  sapply(1:3, function(i) {
    survival <- exp(-risk[i] * cumsum(d / s0))
    area <- survival * diff(c(times, horizon))
    after <- rev(cumsum(rev(area)))
    q <- colSums(after * (d / s0) * sweep(-centre, 2, x[i, ], "+"))
    variance <- risk[i]^2 * (sum(after^2 * d / s0^2) + drop(q %*% vcov(fit) %*% q))
    times[1] + sum(area) + c(-1, 1) * qnorm(0.975) * sqrt(variance)
  })
}
add("limits-restricted-mean", "Limits of the restricted mean of three subjects from Cox regression (delta method, Breslow)",
    "trial", list(limits = restricted(coxph(formula, trial, ties = "breslow", control = tight), 6)))

zph <- function(fit) {
  tables <- lapply(c(km = "km", rank = "rank", identity = "identity", log = "log"),
                   function(g) unname(cox.zph(fit, transform = g)$table))
  c(lapply(tables, function(t) t[, 1]), list(df = tables$km[, 2], p = tables$km[, 3]))
}
test <- "Test of proportional hazards, per term and global, four transforms of time (cox.zph)"
add("zph-efron", test, "trial", zph(coxph(formula, trial, control = tight)))
add("zph-breslow", paste0(test, ", ties by Breslow"), "trial", zph(coxph(formula, trial, ties = "breslow", control = tight)))
add("zph-entry-strata", paste0(test, ", delayed entry and strata"), "trial",
    zph(coxph(update(entered, ~ . + strata(site)), trial, control = tight)))
add("zph-weights", paste0(test, ", sampling weights"), "trial", zph(coxph(formula, trial, weights = weight, control = tight)))
add("zph-counts", paste0(test, ", whole weights"), "trial, rows repeated", zph(coxph(formula, repeated, control = tight)))
write_record("coxph.json")
