package main

import (
	"errors"
	"fmt"
	"math"
)

// line is how a figure grows: a base, and so much for each of several things.
type line struct {
	base   float64
	slopes []float64
	// worst is by how much the line misses the figure that it misses most.
	worst float64
}

// at is the figure for so many of each. What was measured to shrink does not: less than nothing is noise, which a large number would blow up.
func (l line) at(numbers ...float64) float64 {
	value := max(l.base, 0)
	for i, n := range numbers {
		value += max(l.slopes[i], 0) * n
	}
	return value
}

// scaled is the line in another unit.
func (l line) scaled(by float64) line {
	slopes := make([]float64, len(l.slopes))
	for i, s := range l.slopes {
		slopes[i] = s * by
	}
	return line{base: l.base * by, slopes: slopes, worst: l.worst * by}
}

// errFewPoints is returned for points that leave a line undetermined.
var errFewPoints = errors.New("the points do not determine a line")

// fit is the line that misses the values by the least squares. Each row has the numbers of the things of one value.
func fit(rows [][]float64, values []float64) (line, error) {
	with := make([][]float64, len(rows))
	for i, row := range rows {
		with[i] = append([]float64{1}, row...)
	}
	solution, err := leastSquares(with, values)
	if err != nil {
		return line{}, err
	}
	l := line{base: solution[0], slopes: solution[1:]}
	for i, row := range with {
		l.worst = max(l.worst, math.Abs(dot(solution, row)-values[i]))
	}
	return l, nil
}

// each is the line without a base: so much for each of one thing.
func each(numbers, values []float64) (line, error) {
	rows := make([][]float64, len(numbers))
	for i, n := range numbers {
		rows[i] = []float64{n}
	}
	solution, err := leastSquares(rows, values)
	if err != nil {
		return line{}, err
	}
	l := line{slopes: solution}
	for i, n := range numbers {
		l.worst = max(l.worst, math.Abs(solution[0]*n-values[i]))
	}
	return l, nil
}

// leastSquares solves the normal equations of rows·x = values by elimination. Columns are scaled to their largest first: machines come in
// thousands, and ones in ones.
func leastSquares(rows [][]float64, values []float64) ([]float64, error) {
	if len(rows) == 0 || len(rows) < len(rows[0]) || len(rows) != len(values) {
		return nil, fmt.Errorf("fit %d values: %w", len(values), errFewPoints)
	}
	n := len(rows[0])
	scale := make([]float64, n)
	for _, row := range rows {
		for j, v := range row {
			scale[j] = max(scale[j], math.Abs(v))
		}
	}
	normal := make([][]float64, n) // with the right side as its last column
	for j := range n {
		if scale[j] == 0 {
			return nil, fmt.Errorf("fit %d values: %w", len(values), errFewPoints)
		}
		normal[j] = make([]float64, n+1)
		for i, row := range rows {
			for k := range n {
				normal[j][k] += row[j] / scale[j] * row[k] / scale[k]
			}
			normal[j][n] += row[j] / scale[j] * values[i]
		}
	}
	if !eliminate(normal) {
		return nil, fmt.Errorf("fit %d values: %w", len(values), errFewPoints)
	}
	solution := make([]float64, n)
	for j := range n {
		solution[j] = normal[j][n] / scale[j]
	}
	return solution, nil
}

// eliminate leaves the solution in the last column; false if there is no single one.
func eliminate(m [][]float64) bool {
	const none = 1e-9
	for j := range m {
		pivot := j
		for i := j + 1; i < len(m); i++ {
			if math.Abs(m[i][j]) > math.Abs(m[pivot][j]) {
				pivot = i
			}
		}
		if math.Abs(m[pivot][j]) < none {
			return false
		}
		m[j], m[pivot] = m[pivot], m[j]
		for k := len(m[j]) - 1; k >= j; k-- {
			m[j][k] /= m[j][j]
		}
		for i := range m {
			if i == j {
				continue
			}
			for k, factor := j, m[i][j]; k < len(m[i]); k++ {
				m[i][k] -= factor * m[j][k]
			}
		}
	}
	return true
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
