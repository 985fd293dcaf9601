// Three hierarchical models for TMB; models.R runs them.
#include <TMB.hpp>

template <class Type>
Type objective_function<Type>::operator()() {
  DATA_INTEGER(model);  // 1: autoregression, 2: field on a grid, 3: crossed effects
  DATA_VECTOR(y);
  DATA_IVECTOR(first);
  DATA_IVECTOR(second);
  DATA_SPARSE_MATRIX(laplacian);
  PARAMETER_VECTOR(theta);
  PARAMETER_VECTOR(z);
  Type nll = 0;
  if (model == 1) {
    Type phi = tanh(theta(0)), s = exp(theta(1));
    nll -= dnorm(z(0), Type(0), s / sqrt(1 - phi * phi), true);
    for (int i = 1; i < z.size(); i++) nll -= dnorm(z(i), phi * z(i - 1), s, true);
    for (int i = 0; i < z.size(); i++) nll -= dpois(y(i), exp(theta(2) + z(i)), true);
  }
  if (model == 2) {
    Eigen::SparseMatrix<Type> eye(z.size(), z.size());
    eye.setIdentity();
    Eigen::SparseMatrix<Type> Q = exp(theta(0)) * (laplacian + exp(theta(1)) * eye);
    nll += density::GMRF(Q)(z);
    for (int i = 0; i < z.size(); i++) nll -= dpois(y(i), exp(theta(2) + z(i)), true);
  }
  if (model == 3) {
    int a = 15;
    for (int i = 0; i < z.size(); i++) nll -= dnorm(z(i), Type(0), exp(i < a ? theta(0) : theta(1)), true);
    for (int i = 0; i < y.size(); i++)
      nll -= dbinom_robust(y(i), Type(1), theta(2) + z(first(i)) + z(a + second(i)), true);
  }
  return nll;
}
