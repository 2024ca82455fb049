"""SurvNODE: survival as the transition probability of a Markov process driven by a neural ODE."""
