"""TensorFlow Probability as a client: samples with a seed for each row, log_prob, no fallback.

pip install ".[tfp]"
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor import NotVectorizableError

tfp = pytest.importorskip("tensorflow_probability", exc_type=ImportError)
d = tfp.distributions

N = 3
LOWER = tf.constant([[1.0, 0.0], [0.5, 2.0]])
SEEDS = tf.constant(np.random.default_rng(0).integers(-(2**31), 2**31, [N, 2]), tf.int32)
PARAMETERS = tf.linspace(0.1, 0.9, N)

# By name: a distribution with one positive parameter.
DISTRIBUTIONS = {
    "Bernoulli": lambda p: d.Bernoulli(logits=p),
    "Beta": lambda p: d.Beta(p + 1.0, 2.0),
    "BetaBinomial": lambda p: d.BetaBinomial(4.0, p + 1.0, 2.0),
    "Binomial": lambda p: d.Binomial(5.0, logits=p),
    "Categorical": lambda p: d.Categorical(logits=tf.stack([p, 0.0, 1.0])),
    "Cauchy": lambda p: d.Cauchy(p, 1.0),
    "Chi2": lambda p: d.Chi2(p + 1.0),
    "Dirichlet": lambda p: d.Dirichlet(tf.stack([p + 1.0, 2.0, 3.0])),
    "DirichletMultinomial": lambda p: d.DirichletMultinomial(4.0, tf.stack([p + 1.0, 2.0])),
    "Exponential": lambda p: d.Exponential(p + 1.0),
    "ExpGamma": lambda p: d.ExpGamma(p + 1.0, 2.0),
    "Gamma": lambda p: d.Gamma(p + 1.0, 2.0),
    "GammaGamma": lambda p: d.GammaGamma(p + 1.0, 2.0, 3.0),
    "GaussianProcess": lambda p: d.GaussianProcess(
        tfp.math.psd_kernels.ExponentiatedQuadratic(p + 1.0), tf.constant([[0.0], [1.0], [2.0]])
    ),
    "GeneralizedNormal": lambda p: d.GeneralizedNormal(p, 1.0, 2.0),
    "Geometric": lambda p: d.Geometric(logits=p),
    "Gumbel": lambda p: d.Gumbel(p, 1.0),
    "HalfCauchy": lambda p: d.HalfCauchy(0.0, p + 1.0),
    "HalfNormal": lambda p: d.HalfNormal(p + 1.0),
    "HiddenMarkovModel": lambda p: d.HiddenMarkovModel(
        d.Categorical(probs=[0.5, 0.5]), d.Categorical(probs=[[0.3, 0.7], [0.6, 0.4]]),
        d.Normal(tf.stack([p, -p]), 1.0), 3,
    ),
    "Horseshoe": lambda p: d.Horseshoe(p + 1.0),
    "Independent": lambda p: d.Independent(d.Normal(tf.stack([p, 2 * p]), 1.0), 1),
    "InverseGamma": lambda p: d.InverseGamma(p + 1.0, 2.0),
    "InverseGaussian": lambda p: d.InverseGaussian(p + 1.0, 2.0),
    "JohnsonSU": lambda p: d.JohnsonSU(p, 1.0, 0.0, 1.0),
    "Kumaraswamy": lambda p: d.Kumaraswamy(p + 1.0, 2.0),
    "LKJ": lambda p: d.LKJ(3, p + 1.0),
    "Laplace": lambda p: d.Laplace(p, 1.0),
    "LogNormal": lambda p: d.LogNormal(p, 1.0),
    "Logistic": lambda p: d.Logistic(p, 1.0),
    "LogitNormal": lambda p: d.LogitNormal(p, 1.0),
    "Mixture": lambda p: d.Mixture(
        d.Categorical(probs=[0.3, 0.7]), [d.Normal(p, 1.0), d.Normal(-p, 2.0)]
    ),
    "MixtureSameFamily": lambda p: d.MixtureSameFamily(
        d.Categorical(probs=[0.3, 0.7]), d.Normal(tf.stack([p, -p]), 1.0)
    ),
    "Moyal": lambda p: d.Moyal(p, 1.0),
    "Multinomial": lambda p: d.Multinomial(4.0, logits=tf.stack([p, 0.0, 1.0])),
    "MultivariateNormalDiag": lambda p: d.MultivariateNormalDiag(
        tf.stack([p, 2.0]), tf.stack([p + 1.0, 2.0])
    ),
    "MultivariateNormalDiagPlusLowRank": lambda p: d.MultivariateNormalDiagPlusLowRank(
        tf.stack([p, 2.0]), tf.stack([p + 1.0, 2.0]), scale_perturb_factor=tf.ones([2, 1])
    ),
    "MultivariateNormalFullCovariance": lambda p: d.MultivariateNormalFullCovariance(
        tf.stack([p, 2.0]), tf.matmul(LOWER, LOWER, transpose_b=True) * (p + 1.0)
    ),
    "MultivariateNormalTriL": lambda p: d.MultivariateNormalTriL(
        tf.stack([p, 2.0]), LOWER * (p + 1.0)
    ),
    "MultivariateStudentT": lambda p: d.MultivariateStudentTLinearOperator(
        3.0 + p, tf.stack([p, 2.0]), tf.linalg.LinearOperatorLowerTriangular(LOWER)
    ),
    "NegativeBinomial": lambda p: d.NegativeBinomial(3.0, logits=p),
    "Normal": lambda p: d.Normal(p, 1.0),
    "OneHotCategorical": lambda p: d.OneHotCategorical(logits=tf.stack([p, 0.0, 1.0])),
    "OrderedLogistic": lambda p: d.OrderedLogistic(tf.constant([-1.0, 1.0]), p),
    "Pareto": lambda p: d.Pareto(p + 1.0),
    "PlackettLuce": lambda p: d.PlackettLuce(tf.stack([p + 1.0, 2.0, 3.0])),
    "Poisson": lambda p: d.Poisson(p + 1.0),
    "Quantized": lambda p: d.QuantizedDistribution(d.Normal(p, 3.0), low=-5.0, high=5.0),
    "RelaxedBernoulli": lambda p: d.RelaxedBernoulli(0.5, logits=p),
    "RelaxedOneHotCategorical": lambda p: d.RelaxedOneHotCategorical(
        0.5, logits=tf.stack([p, 0.0, 1.0])
    ),
    "Sample": lambda p: d.Sample(d.Normal(p, 1.0), 4),
    "SinhArcsinh": lambda p: d.SinhArcsinh(p, 1.0, skewness=0.3),
    "Skellam": lambda p: d.Skellam(p + 1.0, 2.0),
    "SphericalUniform": lambda p: d.TransformedDistribution(
        d.SphericalUniform(3), tfp.bijectors.Shift(tf.stack([p, p, p]))
    ),
    "StudentT": lambda p: d.StudentT(3.0 + p, 0.0, 1.0),
    "TransformedDistribution": lambda p: d.TransformedDistribution(
        d.Normal(p, 1.0), tfp.bijectors.Exp()
    ),
    "Triangular": lambda p: d.Triangular(0.0, p + 2.0, 1.0),
    "TruncatedNormal": lambda p: d.TruncatedNormal(p, 1.0, -1.0, 2.0),
    "Uniform": lambda p: d.Uniform(0.0, p + 1.0),
    "VonMises": lambda p: d.VonMises(p, 1.0),
    "VonMisesFisher": lambda p: d.VonMisesFisher(tf.constant([0.6, 0.8]), p + 1.0),
    "Weibull": lambda p: d.Weibull(p + 1.0, 2.0),
    "WishartTriL": lambda p: d.WishartTriL(3.0 + p, LOWER),
    "Zipf": lambda p: d.Zipf(p + 2.0),
}  # fmt: skip

# What does not work without the fallback, sorted; a test fails when it works and stays here.
REFUSED: tuple[str, ...] = ()


def _samples(name):
    draw = lambda p, seed: DISTRIBUTIONS[name](p).sample(seed=seed)
    one = tf.function(draw, autograph=False)
    return draw, np.stack([one(*e) for e in zip(tf.unstack(PARAMETERS), tf.unstack(SEEDS))])


def _map(fn, *rows):
    return tf_pfor.vectorized_map(lambda e: fn(*e), rows, fallback_to_while_loop=False)


def _checked(name, run):
    if name not in REFUSED:
        return run()
    with pytest.raises(NotVectorizableError):
        run()
    return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_a_distribution(name):
    """The samples of a loop, but for the last bits of what is computed from the draws."""
    draw, expected = _samples(name)
    found = _checked(f"{name}.sample", lambda: _map(draw, PARAMETERS, SEEDS))
    if found is not None:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    log_prob = lambda p, x: DISTRIBUTIONS[name](p).log_prob(x)
    one = tf.function(log_prob, autograph=False)
    values = tf.constant(expected)
    expected = np.stack([one(*e) for e in zip(tf.unstack(PARAMETERS), tf.unstack(values))])
    found = _checked(f"{name}.log_prob", lambda: _map(log_prob, PARAMETERS, values))
    if found is not None:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_list_names_distributions():
    names = {name.split(".")[0] for name in REFUSED}
    assert names <= set(DISTRIBUTIONS)
    assert list(REFUSED) == sorted(REFUSED)
