# Shared by the scripts of this folder: the data, and how results are recorded.
suppressPackageStartupMessages(library(survival))
options(warn = 1)

trial <- read.csv("trial.csv", stringsAsFactors = TRUE)
spells <- read.csv("spells.csv")
trial$status <- as.integer(trial$cause > 0)
trial$weight <- trial$weight / mean(trial$weight)       # sampling weights are scaled to a mean of one in sumosurv

entries <- list()

# add("name", "what is computed", "data", { list(...) }): the expression is evaluated and stored with its results.
add <- function(name, what, data, code) {
  shown <- deparse(substitute(code), width.cutoff = 100)
  if (shown[1] == "{") shown <- sub("^    ", "", shown[-c(1, length(shown))])
  entries[[name]] <<- list(what = what, data = data, code = as.list(shown), values = code)
}

# The results of a script as JSON, numbers with all their digits, with the versions of R and of the packages.
write_record <- function(file, packages = "survival") {
  versions <- c(list(R = paste(R.version$major, R.version$minor, sep = ".")),
                setNames(lapply(packages, function(p) as.character(packageVersion(p))), packages))
  text <- jsonlite::toJSON(list(versions = versions, entries = entries), digits = I(17), auto_unbox = FALSE,
                           na = "string", pretty = TRUE)
  writeLines(text, file)
}
