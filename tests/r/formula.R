# Formulas: factors with reference levels, interactions, contrasts, splines, polynomials, strata, cluster and offset.
source("common.R")
library(splines)
tight <- coxph.control(eps = 1e-12, toler.chol = 1e-13, iter.max = 100)
trial$low <- ifelse(trial$status == 1, trial$time - 0.5, trial$time)      # times are whole half-years
trial$high <- ifelse(trial$status == 1, trial$time, NA)
trial$low[trial$low == 0] <- NA                                           # left-censored

estimates <- function(fit) list(coef = unname(coef(fit)), standard_error = unname(sqrt(diag(vcov(fit)))))
cox <- function(formula, ...) estimates(coxph(formula, trial, control = tight, ...))
what <- "Cox regression from a formula: "

add("formula-reference", paste0(what, "reference level and interaction"), "trial",
    cox(Surv(time, status) ~ age + relevel(arm, ref = "low") + age:site))
add("formula-interactions", paste0(what, "crossed terms, and an interaction without its main effect"), "trial",
    cox(Surv(time, status) ~ arm * ns(age, df = 2) + site:marker))
add("formula-contrasts", paste0(what, "sum, Helmert and polynomial contrasts"), "trial", {
  trial$dose <- factor(trial$count)
  cox(Surv(time, status) ~ C(arm, contr.sum) + C(dose, contr.helmert) + C(arm, contr.poly):age)
})
add("formula-functions", paste0(what, "polynomials, logarithms, scaling, complete cases"), "trial",
    cox(Surv(time, status) ~ poly(age, 3) + log(marker + 1) + scale(bmi) + I(age > 60)))
add("formula-roles", paste0(what, "delayed entry, strata, cluster and offset; log-likelihoods, survival and limits"), "trial", {
  fit <- coxph(Surv(entry, time, status) ~ age + arm + strata(site) + cluster(subject) + offset(marker / 2), trial, control = tight)
  at <- lapply(1:3, function(i) summary(survfit(fit, newdata = trial[i, ], conf.type = "log-log"), times = c(1, 2, 4), extend = TRUE))
  c(estimates(fit), list(log_likelihood = rev(fit$loglik), survival = t(sapply(at, `[[`, "surv")),
                         lower = t(sapply(at, `[[`, "lower")), upper = t(sapply(at, `[[`, "upper"))))
})
splines <- coxph(Surv(time, status) ~ bs(age, df = 5) + ns(marker, df = 3) + bs(weight, knots = 1.5, degree = 2), trial, control = tight)
add("formula-splines", paste0(what, "B-splines and natural splines, Wald and proportionality tests per term"), "trial", {
  terms <- sapply(splines$assign, function(j) drop(coef(splines)[j] %*% solve(vcov(splines)[j, j], coef(splines)[j])))
  c(estimates(splines), list(terms = unname(terms), zph = unname(cox.zph(splines)$table[, 1])))
})
add("formula-splines-beyond", "Splines beyond the range of the training rows: log hazard ratios", "trial", {
  rows <- data.frame(age = c(60, 20, 110), marker = c(1, 9, -2), weight = c(1, 0.1, 4))
  made <- suppressWarnings(predict(splines, rows, reference = "zero"))
  list(difference = unname(made[2:3] - made[1]))
})
add("formula-survreg", "Parametric regression from a formula: splines and offset (log-normal)", "trial", {
  fit <- survreg(Surv(time, status) ~ ns(age, df = 3) + arm + offset(marker / 2), trial, dist = "lognormal",
                 control = list(rel.tolerance = 1e-12, maxiter = 100))
  list(coef = unname(coef(fit)[c(2:6, 1)]), log_likelihood = rev(fit$loglik),
       median = unname(exp(fit$linear.predictors[1:3])))
})
add("formula-interval", "Parametric regression from a formula: interval2, with open ends (Weibull)", "trial", {
  fit <- survreg(Surv(low, high, type = "interval2") ~ bs(age, df = 4) + relevel(arm, ref = "low"), trial,
                 control = list(rel.tolerance = 1e-12, maxiter = 100))
  list(coef = unname(coef(fit)[c(2:7, 1)]), log_likelihood = rev(fit$loglik))
})
add("formula-finegray", "Fine-Gray regression from a formula: splines and offset", "trial", {
  both <- lapply(1:2, function(k) {
    rows <- finegray(Surv(time, factor(cause)) ~ ., data = trial[c("time", "cause", "arm", "age", "marker")], etype = k)
    coef(coxph(Surv(fgstart, fgstop, fgstatus) ~ ns(age, knots = c(55, 65)) + arm + offset(marker / 2), rows, weights = fgwt,
               ties = "breslow", control = tight))
  })
  list(coef = unname(both))
})
write_record("formula.json", c("survival", "splines"))
