# Scores of predicted risks: Brier and index of prediction accuracy, calibration by pseudo-observations, optimism.
source("common.R")
suppressPackageStartupMessages({library(riskRegression); library(prodlim); library(rms); library(geepack)})

trial$untied <- trial$time + seq_len(nrow(trial)) / 1e4
trial$scale <- exp(1.5 - 0.4 * trial$marker)
times <- c(1.1, 3.1, 6.1)
risk <- 1 - exp(-outer(1 / trial$scale, times))                 # of an exponential model
share <- outer(rep(0.7, nrow(trial)), rep(1, 3)) * risk         # of cause 1

of_score <- function(found) {
  table <- as.data.frame(found$Brier$score)
  list(brier = table$Brier[table$model == "m"], ipa = table$IPA[table$model == "m"])
}
add("ipa", "Brier score and index of prediction accuracy (Score)", "trial, ties broken", {
  of_score(Score(list(m = risk), Surv(untied, status) ~ 1, trial, times = times, metrics = "brier", summary = "ipa",
                 conf.int = FALSE))
})
add("ipa-cause", "Brier score and index of prediction accuracy of one cause (Score)", "trial, ties broken", {
  of_score(Score(list(m = share), Hist(untied, cause) ~ 1, trial, times = times, cause = 1, metrics = "brier",
                 summary = "ipa", conf.int = FALSE))
})
add("ipa-integrated", "Scaled integrated Brier score (Score at 50 times, trapezoidal rule)", "trial, ties broken", {
  grid <- seq(0.6, 6.1, length.out = 50)
  table <- as.data.frame(Score(list(m = 1 - exp(-outer(1 / trial$scale, grid))), Surv(untied, status) ~ 1, trial,
                               times = grid, metrics = "brier", conf.int = FALSE)$Brier$score)
  area <- function(b) sum(diff(grid) * (head(b, -1) + tail(b, -1)) / 2)
  list(value = 1 - area(table$Brier[table$model == "m"]) / area(table$Brier[table$model == "Null model"]))
})

# pseudo-observations by leaving out each row in turn, with ties as they are
pseudo <- function(estimate, data) {
  whole <- estimate(data)
  n <- nrow(data)
  sapply(seq_len(n), function(i) n * whole - (n - 1) * estimate(data[-i, ]))
}
incidence <- function(t) function(d) 1 - summary(survfit(Surv(time, status) ~ 1, d), times = t, extend = TRUE)$surv
of_cause <- function(t) function(d) {
  found <- cuminc(d$time, d$cause)$"1 1"
  approx(found$time, found$est, t, method = "constant", f = 0, rule = 2, ties = max)$y
}
line <- function(p, predicted) {
  z <- log(-log(1 - predicted))
  fit <- function(formula, start) {
    geese(formula, id = seq_along(p), mean.link = "cloglog", variance = "gaussian", corstr = "independence",
          scale.fix = TRUE, b = start, control = geese.control(epsilon = 1e-12, maxit = 100))$beta
  }
  list(intercept = unname(fit(p ~ offset(z), 0)), slope = unname(fit(p ~ z, c(0, 1))[2]))
}
suppressPackageStartupMessages(library(cmprsk))
add("calibration-line", "Calibration intercept and slope at 3: pseudo-observations, complementary log-log link", "trial", {
  line(pseudo(incidence(3), trial), 1 - exp(-3 / trial$scale))
})
add("calibration-line-counts", "Calibration intercept and slope (whole weights)", "trial, rows repeated", {
  again <- trial[rep(seq_len(nrow(trial)), trial$count), ]
  line(pseudo(incidence(3), again), 1 - exp(-3 / again$scale))
})
add("calibration-line-cause", "Calibration intercept and slope of one cause", "trial", {
  line(pseudo(of_cause(3), trial), 0.7 * (1 - exp(-3 / trial$scale)))
})

restricted <- function(tau) function(d) unname(summary(survfit(Surv(time, status) ~ 1, d), rmean = tau)$table["rmean"])
add("mean-absolute-error", "Mean absolute error of medians up to 6, censored times by pseudo-observations", "trial", {
  tau <- 6
  known <- pmin(trial$time, tau)
  censored <- trial$status == 0 & trial$time < tau
  weight <- ifelse(censored, incidence(1)(trial), 1)
  weight[censored] <- sapply(trial$time[censored], function(t) incidence(t)(trial))
  value <- ifelse(censored, pseudo(restricted(tau), trial), known)
  list(value = sum(weight * abs(value - pmin(log(2) * trial$scale, tau))) / sum(weight))
})

# rms::validate, repeated with survival's concordance on the same resamples: rms breaks some ties of equal predictions
# by rounding errors, which changes the fifth digit
add("optimism", "Optimism of Somers' D of Cox regression by 40 resamples (rms::validate with survival's concordance)",
    "trial", {
  fit <- cph(Surv(time, status) ~ arm + age + marker, trial, x = TRUE, y = TRUE, surv = TRUE, time.inc = 3)
  set.seed(30)
  found <- unname(validate(fit, B = 40)["Dxy", c("index.orig", "training", "test", "optimism", "index.corrected")])
  set.seed(30)
  rows <- t(replicate(40, sample(nrow(trial), replace = TRUE)))
  somers <- function(fit, d) unname(2 * concordance(fit, newdata = d)$concordance - 1)
  cox <- function(d) coxph(Surv(time, status) ~ arm + age + marker, d)
  apparent <- somers(cox(trial), trial)
  each <- rowMeans(apply(rows, 1, function(i) {
    model <- cox(trial[i, ])
    c(somers(model, trial[i, ]), somers(model, trial))
  }))
  dxy <- c(apparent, each, each[1] - each[2], apparent - each[1] + each[2])
  stopifnot(max(abs(dxy - found)) < 1e-5)
  list(rows = rows, dxy = dxy)
})

write_record("scores.json", c("survival", "riskRegression", "prodlim", "cmprsk", "geepack", "rms"))
