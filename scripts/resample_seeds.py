"""How often equal systems with few seeds are called different: two ways to judge their variation.

    python scripts/resample_seeds.py

Two systems of N runs each are equal but for random variation: each run has a quality of its own (standard
normal), and the test set favours one system by a normal number (of the given deviation). A test may find
p <= 0.05 in 5 % of the cases.
"""

import numpy as np

TRIALS, SAMPLES, LEVEL = 4000, 500, 0.05


def main() -> None:
    print("| runs | luck of the test set | seeds resampled | Student's t |")
    print("|---|---|---|---|")
    for runs in (2, 3, 5, 10):
        for luck in (0.0, 1.0):
            shares = [false_alarms(runs, luck, is_resampled) for is_resampled in (True, False)]
            print(f"| {runs} | {luck} | {shares[0]:.1%} | {shares[1]:.1%} |")


def false_alarms(runs: int, luck: float, is_resampled: bool) -> float:
    """The share of trials in which two equal systems are called different."""
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(TRIALS):
        one, other = generator.standard_normal((2, runs))
        difference = other.mean() - one.mean() + luck * generator.standard_normal()
        samples = luck * generator.standard_normal(SAMPLES)
        if is_resampled:
            drawn = generator.integers(0, runs, (SAMPLES, runs))
            samples += (other - one)[drawn].mean(axis=1) - (other.mean() - one.mean())
        else:  # as significance.py does
            deviation = np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
            samples += generator.standard_t(2 * runs - 2, SAMPLES) * deviation * np.sqrt(2 / runs)
        p = (1 + np.sum(np.abs(samples) >= abs(difference))) / (SAMPLES + 1)
        found += p <= LEVEL
    return found / TRIALS


if __name__ == "__main__":
    main()
