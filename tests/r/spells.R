# Start-stop rows: tmerge with measurements, counts, lags and delayed entry; survSplit.
source("common.R")
tight <- coxph.control(eps = 1e-12, toler.chol = 1e-13, iter.max = 100)
visits <- read.csv("visits.csv")
first <- trial[1:60, ]
first$id <- 1:60
heart <- transform(jasa, id = seq_len(nrow(jasa)), futime = pmax(0.5, futime))
heart$wait <- ifelse(heart$wait.time == heart$futime, heart$wait.time - 0.5, heart$wait.time)
write.csv(heart[c("id", "futime", "fustat", "wait", "age", "surgery")], "jasa.csv", row.names = FALSE)
known <- function(x) ifelse(is.na(x), -1, x)

merged <- tmerge(first, first, id = id, tstart = entry, tstop = time)
merged <- tmerge(merged, first, id = id, died = event(time, status))
merged <- tmerge(merged, visits, id = id, crp = tdc(time, crp), dose = tdc(time + 0.7, dose))
merged <- tmerge(merged, subset(visits, relapse == 1), id = id, relapses = cumtdc(time))
merged <- tmerge(merged, subset(visits, relapse == 1), id = id, relapsed = tdc(time))
add("tmerge-rows", "Start-stop rows: last value carried forward, lag, counts, indicators, delayed entry (tmerge)", "trial, visits",
    with(merged, list(id = id, start = tstart, stop = tstop, event = died, crp = known(crp), dose = known(dose),
                      relapses = relapses, relapsed = relapsed)))
add("tmerge-cox", "Cox regression on the rows of tmerge", "trial, visits", {
  fit <- coxph(Surv(tstart, tstop, died) ~ age + crp + relapses, merged, cluster = id, control = tight)
  list(coef = unname(coef(fit)), standard_error = unname(sqrt(diag(vcov(fit)))))
})

treated <- tmerge(heart, heart, id = id, died = event(futime, fustat), transplanted = tdc(wait))
add("tmerge-heart", "Cox regression with the heart transplant as time-varying covariate (tmerge)", "survival::jasa", {
  fit <- coxph(Surv(tstart, tstop, died) ~ age + surgery + transplanted, treated, control = tight)
  list(rows = nrow(treated), exposure = sum((treated$tstop - treated$tstart) * treated$transplanted), coef = unname(coef(fit)))
})
divided <- survSplit(Surv(tstart, tstop, died) ~ ., treated, cut = c(30, 180), episode = "period")
add("survsplit-heart", "Cox regression with an effect per period of follow-up (survSplit)", "survival::jasa", {
  fit <- coxph(Surv(tstart, tstop, died) ~ age + transplanted + transplanted:I(period == 3), divided, control = tight)
  list(id = divided$id, start = divided$tstart, stop = divided$tstop, event = divided$died, period = divided$period,
       coef = unname(coef(fit)))
})
write_record("spells.json")
