# Concordance with tied times, tied predictions and weights, by R's survival::concordance.
# Run in this folder: Rscript concordance.R > concordance.json
suppressMessages(library(survival))
library(jsonlite)

row <- 0:59
time <- (row * 37) %% 11 + 1
event <- as.integer((row * 7) %% 10 < 7)
risk <- ((row * 29) %% 13) / 4
weight <- (row * 17) %% 4 + 1
repeated <- rep(seq_along(row), weight)

value <- function(rows, risk, weight) {
  some <- data.frame(case = weight[rows], time = time[rows], event = event[rows], risk = risk[rows])
  found <- concordance(Surv(time, event) ~ risk, data = some, weights = case, reverse = TRUE)
  unname(found$concordance)
}
one <- rep(1, length(row))
cat(toJSON(list(
  R = R.version.string,
  survival = as.character(packageVersion("survival")),
  time = time, event = event, risk = risk, weight = weight,
  plain = value(seq_along(row), risk, one),
  weighted = value(seq_along(row), risk, weight),
  repeated = value(repeated, risk, one),
  constant = value(seq_along(row), 0 * risk, one)
), digits = NA, auto_unbox = TRUE, pretty = FALSE), "\n")
