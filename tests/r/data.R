# The simulated tables behind the records: a trial with every kind of complication, and start-stop rows.
set.seed(27)
n <- 240
arm <- factor(sample(c("control", "high", "low"), n, TRUE))
age <- round(rnorm(n, 60, 9), 1)
marker <- round(rexp(n), 3)
site <- factor(sample(c("east", "west"), n, TRUE))
subject <- rep(1:120, each = 2)
frailty <- rgamma(120, 2, 2)[subject]
rate <- 0.25 * frailty * exp(0.03 * (age - 60) + 0.4 * marker - 0.6 * (arm == "high") - 0.3 * (arm == "low"))
t1 <- rexp(n, rate)
t2 <- rexp(n, 0.1 * exp(0.02 * (age - 60)))
follow_up <- runif(n, 1, 9)
time <- ceiling(2 * pmin(t1, t2, follow_up)) / 2      # half-years: many ties
cause <- ifelse(t1 < pmin(t2, follow_up), 1, ifelse(t2 < follow_up, 2, 0))
entry <- ifelse(runif(n) < 0.4, round(time * runif(n, 0, 0.8), 2), 0)
count <- sample(1:3, n, TRUE)
weight <- round(runif(n, 0.3, 2.5), 3)
carrier <- as.integer(cause == 0 & runif(n) < 0.3)    # never with an event: a monotone likelihood
bmi <- round(rnorm(n, 26, 4), 1)
bmi[sample(n, 25)] <- NA
write.csv(data.frame(time, cause, entry, arm, age, marker, site, subject, count, weight, carrier, bmi),
          "trial.csv", row.names = FALSE)

m <- 80
rows <- do.call(rbind, lapply(1:m, function(i) {
  x <- rnorm(3)
  cut <- sort(round(runif(2, 0.2, 3), 1))
  cut <- unique(cut)
  start <- c(0, cut)
  value <- x[seq_along(start)]
  stop <- c(cut, 6)
  event <- 0
  for (k in seq_along(start)) {
    t <- start[k] + rexp(1, 0.3 * exp(0.7 * value[k]))
    if (t < stop[k]) { stop[k] <- max(ceiling(10 * t) / 10, start[k] + 0.1); event <- 1; break }
  }
  data.frame(subject = i, start = start[1:k], stop = stop[1:k], event = c(rep(0, k - 1), event), x = value[1:k])
}))
rows$x <- round(rows$x, 1)                             # tied risks
write.csv(rows, "spells.csv", row.names = FALSE)

# dated measurements and relapses of the first subjects: before entry, at and after the end of follow-up, and missing
set.seed(30)
visits <- do.call(rbind, lapply(1:60, function(i) {
  k <- sample(0:4, 1)
  at <- sort(sample(c(0, seq(0.5, time[i] + 0.5, by = 0.5), if (entry[i] > 0) entry[i]), min(k, 2)))
  at <- sort(unique(c(at, round(runif(max(k - 2, 0), 0, time[i] + 0.5), 2))))
  m <- length(at)
  if (m == 0) return(NULL)
  data.frame(id = i, time = at, crp = ifelse(runif(m) < 0.2, NA, round(rexp(m), 2)), dose = sample(1:3, m, TRUE),
             relapse = as.integer(runif(m) < 0.4))
}))
write.csv(visits, "visits.csv", row.names = FALSE)

# more columns than rows
set.seed(31)
n <- 50
x <- round(matrix(rnorm(n * 120), n) + 0.5 * rnorm(n), 2)
t <- rexp(n, exp(drop(x[, 1:4] %*% c(0.8, -0.6, 0.5, -0.4))))
end <- runif(n, 0.5, 4)
colnames(x) <- paste0("x", 1:120)
write.csv(cbind(time = round(pmin(t, end), 4) + 1e-4, event = as.integer(t < end), x), "wide.csv", row.names = FALSE)
