# Parametric regression: survreg, and likelihoods that survreg does not have, optimised here.
source("common.R")
tight <- survreg.control(rel.tolerance = 1e-13, toler.chol = 1e-13, iter.max = 200)
right <- Surv(time, status) ~ arm + age + marker
trial$lower <- ifelse(trial$time > 0.5, trial$time - 0.5, NA)     # times are whole half-years: left-censored in the first
trial$lower[trial$status == 0] <- trial$time[trial$status == 0]
trial$upper <- ifelse(trial$status == 1, trial$time, NA)
interval <- Surv(lower, upper, type = "interval2") ~ arm + age + marker
repeated <- trial[rep(seq_len(nrow(trial)), trial$count), ]

# covariates, intercept and the log of the shape (weibull, loglogistic) or of sigma (lognormal)
estimates <- function(fit, variance = vcov(fit)) {
  k <- length(coef(fit)); sign <- if (fit$dist == "lognormal") 1 else -1
  free <- fit$dist != "exponential"
  v <- sqrt(diag(variance))
  list(coef = unname(c(coef(fit)[-1], coef(fit)[1], if (free) sign * log(fit$scale))),
       standard_error = unname(c(v[2:k], v[1], if (free) v[k + 1])), log_likelihood = fit$loglik[2],
       null_log_likelihood = fit$loglik[1])
}
what <- function(family, detail = "") paste0("Parametric regression, ", family, ": coefficients, standard errors, log-likelihood", detail)
for (family in c("weibull", "exponential", "lognormal", "loglogistic"))
  eval(substitute(add(paste0("survreg-", F), what(F), "trial", estimates(survreg(right, trial, dist = F, control = tight))), list(F = family)))
for (family in c("weibull", "lognormal", "loglogistic"))
  eval(substitute(add(paste0("survreg-interval-", F), what(F, " (left, interval and right censoring)"), "trial",
                      estimates(survreg(interval, trial, dist = F, control = tight))), list(F = family)))
add("survreg-counts", what("weibull", " (whole weights)"), "trial, rows repeated", estimates(survreg(right, repeated, control = tight)))
# survreg's own robust variance leaves out the weights of the residuals, and its residuals of interval-censored rows are
# not the influence of the rows (survival 3.5)
robust <- function(fit, subject) crossprod(rowsum(residuals(fit, type = "dfbeta", weighted = TRUE), subject))
add("survreg-weights", what("weibull", " (sampling weights, robust)"), "trial", {
  fit <- survreg(right, trial, weights = weight, control = tight)
  estimates(fit, robust(fit, seq_len(nrow(trial))))
})
add("survreg-groups", what("lognormal", " (weights, robust by subject)"), "trial", {
  fit <- survreg(right, trial, weights = weight, dist = "lognormal", control = tight)
  estimates(fit, robust(fit, trial$subject))
})
add("survreg-strata", what("weibull", " (strata of shape and intercept)"), "trial", {
  fit <- survreg(update(right, ~ . + site + strata(site)), trial, control = tight)
  at <- rbind(cbind(0, diag(4), 0, 0, 0), c(1, 0, 0, 0, 0, 0, 0, 0), c(0, 0, 0, 0, 0, 0, -1, 0),
              c(1, 0, 0, 0, 0, 1, 0, 0), c(0, 0, 0, 0, 0, 0, 0, -1))
  list(coef = drop(at %*% c(coef(fit), log(fit$scale))), standard_error = sqrt(diag(at %*% vcov(fit) %*% t(at))),
       log_likelihood = fit$loglik[2])
})

ranked <- function(fit) { found <- concordance(fit); list(concordance = found$concordance, standard_error = sqrt(found$var)) }
agreement <- function(family, detail = "") paste0("Parametric regression, ", family, ": concordance and its standard error", detail)
add("survreg-concordance", agreement("weibull"), "trial", ranked(survreg(right, trial, control = tight)))
add("survreg-concordance-weights", agreement("lognormal", " (sampling weights)"), "trial",
    ranked(survreg(right, trial, weights = weight, dist = "lognormal", control = tight)))

# ------------------------------------------------------------------ other likelihoods
x <- model.matrix(~ arm + age + marker, trial)[, -1]
centre <- colMeans(x)
knots <- quantile(log(trial$time[trial$status == 1]), c(0, 1, 2, 3) / 3)
basis <- function(z, order = 0) {
  cube <- function(a) if (order == 0) pmax(z - a, 0)^3 else 3 * pmax(z - a, 0)^2
  sapply(2:3, function(j) {
    share <- (knots[4] - knots[j]) / (knots[4] - knots[1])
    cube(knots[j]) - share * cube(knots[1]) - (1 - share) * cube(knots[4])
  })
}
# each returns log S and log f at t, given the location and the other parameters
families <- list(
  weibull = function(t, location, p) {
    k <- exp(p); h <- exp(k * (log(t) - location))
    list(S = -h, f = p - log(t) + k * (log(t) - location) - h)
  },
  gompertz = function(t, location, p) {
    h <- exp(location) * expm1(p * t) / p
    list(S = -h, f = location + p * t - h)
  },
  generalised_gamma = function(t, location, p) {
    q <- p[2]; w <- (log(t) - location) / exp(p[1]); a <- 1 / q^2
    list(S = pgamma(a * exp(q * w), a, lower.tail = q < 0, log.p = TRUE),
         f = -p[1] - log(t) + log(abs(q)) + a * log(a) + a * (q * w - exp(q * w)) - lgamma(a))
  },
  spline = function(t, location, p) {
    z <- log(t)
    h <- location + p[1] * z + drop(basis(z) %*% p[2:3])
    slope <- p[1] + drop(basis(z, 1) %*% p[2:3])
    if (any(slope <= 0)) return(list(S = NaN, f = NaN))
    list(S = -exp(h), f = h + log(slope) - z - exp(h))
  })
locations <- function(b) drop(sweep(x, 2, centre) %*% b)
# parameters: four coefficients, the location at the mean of x, the others
log_likelihood <- function(theta, family, kind) {
  location <- theta[5] + locations(theta[1:4]); p <- theta[-(1:5)]
  if (kind == "interval") {
    before <- ifelse(is.na(trial$lower), 0, families[[family]](ifelse(is.na(trial$lower), 1, trial$lower), location, p)$S)
    after <- families[[family]](ifelse(is.na(trial$upper), 1, trial$upper), location, p)$S
    return(sum(ifelse(trial$status == 1, before + log(pmax(-expm1(after - before), 0)), before)))
  }
  at <- families[[family]](trial$time, location, p)
  value <- sum(ifelse(trial$status == 1, at$f, at$S))
  if (kind == "entry") {
    late <- trial$entry > 0
    value <- value - sum(families[[family]](ifelse(late, trial$entry, 1), location, p)$S[late])
  }
  value
}
maximum <- function(family, kind, start) {
  f <- function(theta) { v <- log_likelihood(theta, family, kind); if (is.finite(v)) v else -1e10 }
  at <- optim(c(0, 0, 0, 0, start), function(b) -f(b), method = "BFGS", control = list(reltol = 1e-15, maxit = 2000))$par
  hessian <- function(at) numDeriv::hessian(f, at, method.args = list(d = 0.04))
  for (k in 1:5) at <- at - solve(hessian(at), numDeriv::grad(f, at, method.args = list(d = 0.04)))
  list(theta = at, covariance = solve(-hessian(at)), value = f(at))
}
own <- function(family, kind, start) {
  found <- maximum(family, kind, start)
  back <- diag(length(found$theta)); back[5, 1:4] <- -centre          # the location at x = 0
  list(coef = drop(back %*% found$theta), standard_error = sqrt(diag(back %*% found$covariance %*% t(back))),
       log_likelihood = found$value)
}
begin <- list(weibull = c(1.5, 0), gompertz = c(-1.5, 0.01), generalised_gamma = c(1, 0, 0.5), spline = c(-1.5, 1.2, 0, 0))
optimised <- " (optimised in R"
add("parametric-entry-weibull", what("weibull", paste0(optimised, "; delayed entry)")), "trial", own("weibull", "entry", begin$weibull))
add("parametric-gompertz", what("gompertz", paste0(optimised, "; right censoring)")), "trial", own("gompertz", "right", begin$gompertz))
add("parametric-entry-gompertz", what("gompertz", paste0(optimised, "; delayed entry)")), "trial", own("gompertz", "entry", begin$gompertz))
add("parametric-interval-generalised-gamma", what("generalised gamma", paste0(optimised, "; left, interval and right censoring)")), "trial",
    own("generalised_gamma", "interval", begin$generalised_gamma))
add("parametric-spline", what("spline with three degrees of freedom", paste0(optimised, "; right censoring)")), "trial", own("spline", "right", begin$spline))
add("parametric-entry-spline", what("spline with three degrees of freedom", paste0(optimised, "; delayed entry)")), "trial", own("spline", "entry", begin$spline))

band <- function(family, kind, start) {
  found <- maximum(family, kind, start)
  times <- c(0.5, 1, 2, 4, 8)
  rows <- lapply(1:3, function(i) {
    height <- function(theta) log(-families[[family]](times, theta[5] + sum((x[i, ] - centre) * theta[1:4]), theta[-(1:5)])$S)
    slope <- numDeriv::jacobian(height, found$theta)
    list(at = height(found$theta), se = sqrt(diag(slope %*% found$covariance %*% t(slope))))
  })
  limits <- function(z) t(sapply(rows, function(row) exp(-exp(row$at + z * row$se))))
  list(survival = limits(0), lower = limits(qnorm(0.975)), upper = limits(-qnorm(0.975)))
}
add("parametric-band-weibull", "Survival of three subjects from a Weibull regression, with limits by the delta method", "trial",
    band("weibull", "entry", begin$weibull))
add("parametric-band-spline", "Survival of three subjects from a spline regression, with limits by the delta method", "trial",
    band("spline", "entry", begin$spline))
write_record("parametric.json", c("survival", "numDeriv"))
