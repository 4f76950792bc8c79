"""What takes several models or trainings: back-translation, students of teachers, comparisons of variants."""
