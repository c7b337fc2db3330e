package budget

import (
	"errors"
	"fmt"
	"math"
)

// DefaultMinHealthy is the minHealthy of a NodeHealthCheck that sets neither threshold. It is the same rule as a
// maxUnhealthy of 49%, which was the default before. (Seeds 000 and 001.)
const DefaultMinHealthy = "51%"

var errBothThresholds = errors.New("minHealthy and maxUnhealthy cannot be specified at the same time")

// NodeLimits resolves the thresholds of a NodeHealthCheck that watches total nodes; an empty one is not set. Remediation may start
// while at least minHealthy nodes are healthy, or while at most maxUnhealthy are not. How many have to be healthy is
// total - AtMost, in either case.
//
// A percentage of minHealthy is rounded up and one of maxUnhealthy down: both to the side on which less is started.
// (NodeHealthCheck rounds both up, weakness W15.) A maxUnhealthy above total means all; a minHealthy above total is
// never met, so nothing starts.
//
// An error has the text of the operator's webhook, with the name of the field. The limits beside it let nothing start.
func NodeLimits(minHealthy, maxUnhealthy string, total int) (Limits, error) {
	switch {
	case minHealthy != "" && maxUnhealthy != "":
		return Limits{}, errBothThresholds
	case maxUnhealthy != "":
		a, err := parseThreshold("maxUnhealthy", maxUnhealthy)
		if err != nil {
			return Limits{}, err
		}
		return Limits{AtMost: min(a.Of(total), total)}, nil
	case minHealthy == "":
		minHealthy = DefaultMinHealthy
	}
	a, err := parseThreshold("minHealthy", minHealthy)
	if err != nil {
		return Limits{}, err
	}
	return Limits{AtMost: a.Spare(total)}, nil
}

func parseThreshold(field, s string) (Amount, error) {
	a, err := ParseAmount(s)
	switch {
	case errors.Is(err, errNegative):
		return Amount{}, fmt.Errorf("%s %w: %s", field, err, s)
	case err != nil:
		return Amount{}, fmt.Errorf("%s %w", field, err)
	}
	return a, nil
}

// Spare returns how many of total nodes may be bad while a of them have to be healthy. A percentage of healthy nodes is
// rounded up: 51% of 3 is 2, which spares 1. The result is below zero if a is more than there are.
func (a Amount) Spare(total int) int {
	if !a.percent {
		return total - a.value
	}
	return total - int(min((int64(a.value)*int64(total)+99)/100, math.MaxInt32))
}
