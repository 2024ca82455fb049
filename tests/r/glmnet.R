# Cox regression with elastic-net penalties: glmnet, with thresholds that leave its coefficients accurate.
source("common.R")
suppressPackageStartupMessages(library(glmnet))
glmnet.control(epsnr = 1e-14, mxitnr = 100, fdev = 0)
# columns are centred, without which glmnet converges very slowly with delayed entry and strata
x <- scale(model.matrix(~ arm + age + marker + carrier + site, trial)[, -1], scale = FALSE)
plain <- x[, colnames(x) != "carrier"]
y <- Surv(trial$time, trial$status)
entered <- Surv(trial$entry, trial$time, trial$status)
untied <- Surv(trial$time + seq_len(nrow(trial)) / 1e4, trial$status)
wide <- as.matrix(read.csv("wide.csv"))
lambda <- c(0.2, 0.1, 0.05, 0.02, 0.01, 0.003)
fold <- rep(1:8, length.out = nrow(trial))

path <- function(x, y, alpha = 1, lambda. = lambda, ...)
  list(coef = t(as.matrix(coef(glmnet(x, y, family = "cox", alpha = alpha, lambda = lambda., thresh = 1e-16, maxit = 1e6, ...)))))
what <- function(detail) paste0("Elastic net for Cox regression: coefficients for six penalties (", detail, ")")
add("glmnet-lasso", what("lasso, tied times"), "trial", path(x, y))
add("glmnet-elastic-net", what("elastic net, tied times"), "trial", path(x, y, alpha = 0.5))
add("glmnet-ridge", what("ridge, tied times"), "trial", path(x, y, alpha = 0))
add("glmnet-weights", what("lasso, sampling weights"), "trial", path(x, y, weights = trial$weight))
add("glmnet-counts", what("elastic net, whole weights"), "trial", path(x, y, alpha = 0.5, weights = trial$count))
add("glmnet-entry", what("lasso, delayed entry"), "trial", path(plain, entered))
add("glmnet-strata", what("elastic net, strata, delayed entry, weights"), "trial",
    path(plain[, -5], stratifySurv(entered, as.integer(trial$site)), alpha = 0.5, weights = trial$weight))
add("glmnet-wide", what("lasso, 50 rows and 120 columns"), "wide",
    path(wide[, -(1:2)], Surv(wide[, 1], wide[, 2]), lambda. = c(0.2, 0.15, 0.1, 0.07, 0.05, 0.04)))
add("glmnet-wide-ridge", what("ridge, 50 rows and 120 columns"), "wide",
    path(wide[, -(1:2)], Surv(wide[, 1], wide[, 2]), alpha = 0, lambda. = c(20, 10, 5, 2, 1, 0.5)))
add("glmnet-penalties", "Elastic net for Cox regression: sequences of penalties", "trial, wide", {
  sequence <- function(x, y, ...) glmnet(x, y, family = "cox", nlambda = 20, ...)$lambda
  list(lasso = sequence(x, y), elastic_net = sequence(x, y, alpha = 0.5, weights = trial$weight), ridge = sequence(x, y, alpha = 0),
       wide = sequence(wide[, -(1:2)], Surv(wide[, 1], wide[, 2]))[1:10])
})
cross <- function(x, y, alpha) {
  fit <- cv.glmnet(x, y, family = "cox", alpha = alpha, lambda = lambda, foldid = fold, thresh = 1e-16, maxit = 1e6)
  list(deviance = fit$cvm, standard_error = fit$cvsd, lambda = c(fit$lambda.min, fit$lambda.1se))
}
add("cv-glmnet", "Cross-validated deviance of the lasso, its standard error, penalties chosen", "trial, ties broken", cross(x, untied, 1))
add("cv-glmnet-ridge", "Cross-validated deviance of ridge regression, its standard error, penalties chosen", "trial, ties broken", cross(x, untied, 0))
add("cv-glmnet-entry", "Cross-validated deviance of the elastic net, its standard error, penalties chosen (delayed entry)",
    "trial, ties broken", cross(plain, Surv(trial$entry, untied[, 1], trial$status), 0.5))
write_record("glmnet.json", c("survival", "glmnet"))
