"""What is made of several trainings: comparisons of variants, students of teachers."""
