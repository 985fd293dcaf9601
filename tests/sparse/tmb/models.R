# Values, gradients, modes and standard errors of three models by TMB (Debian: r-base-core, r-cran-tmb).
#     Rscript models.R
# reads data.csv, and writes references.csv. The tests read both files, and need no R.
library(TMB)
library(Matrix)
compile("models.cpp", flags = "-O1 -w")
dyn.load(dynlib("models"))
data <- read.csv("data.csv")
of <- function(model, name) data$value[data$model == model & data$name == name]
side <- 8
T <- bandSparse(side, k = c(-1, 0, 1), diagonals = list(rep(-1, side - 1), rep(2, side), rep(-1, side - 1)))
laplacian <- as(kronecker(T, Diagonal(side)) + kronecker(Diagonal(side), T), "generalMatrix")
laplacian <- as(laplacian, "CsparseMatrix")
out <- data.frame()
keep <- function(model, name, value) {
  out <<- rbind(out, data.frame(model = model, name = name, value = sprintf("%.17g", as.numeric(value))))
}
for (model in 1:3) {
  y <- of(model, "y")
  latents <- c(40, side * side, 25)[model]
  obj <- MakeADFun(
    list(
      model = model, y = y, first = as.integer(of(3, "first")), second = as.integer(of(3, "second")),
      laplacian = laplacian
    ),
    list(theta = of(model, "theta"), z = rep(0, latents)),
    random = "z", DLL = "models", silent = TRUE,
    inner.control = list(tol = 1e-13, grad.tol = 1e-13, tol10 = 0)
  )
  obj$env$tracemgc <- FALSE
  theta <- of(model, "theta")
  keep(model, "value", -obj$fn(theta))
  keep(model, "gradient", -obj$gr(theta))
  keep(model, "mode", obj$env$last.par[obj$env$random])
  H <- obj$env$spHess(obj$env$last.par, random = TRUE)
  keep(model, "errors", sqrt(diag(solve(as.matrix(H)))))
  fit <- nlminb(theta, obj$fn, obj$gr, control = list(rel.tol = 1e-14, iter.max = 500, eval.max = 500))
  best <- fit$par
  for (k in 1:5) best <- best - as.numeric(solve(optimHess(best, obj$fn, obj$gr), as.numeric(obj$gr(best))))
  keep(model, "estimates", best)
  keep(model, "estimates_errors", summary(sdreport(obj, best), "fixed")[, 2])
}
write.csv(out, "references.csv", row.names = FALSE, quote = FALSE)
