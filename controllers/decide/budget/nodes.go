package budget

import (
	"errors"
	"fmt"
	"math"
)

// DefaultMinHealthy is the minHealthy of a NodeHealthCheck that sets neither threshold. It means the same as the earlier default, a
// maxUnhealthy of 49%. (Seeds 000 and 001.)
const DefaultMinHealthy = "51%"

var errBothThresholds = errors.New("minHealthy and maxUnhealthy cannot be specified at the same time")

// NodeLimits resolves the thresholds of a NodeHealthCheck that watches total nodes; an empty threshold is not set. Remediations may start
// while at least minHealthy nodes are healthy, or while at most maxUnhealthy are not. In both cases total - AtMost nodes must be healthy.
//
// A percentage in minHealthy is rounded up, and one in maxUnhealthy is rounded down, so that fewer remediations start. (NodeHealthCheck
// rounds both up, weakness W15.) A maxUnhealthy above total means all; with a minHealthy above total nothing starts.
//
// An error has the text of the operator's webhook, with the name of the field. Then the returned limits let nothing start.
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

// Spare returns how many of total nodes may be unhealthy if a of them have to be healthy. A percentage is rounded up: 51% of 3 is 2, so 1
// node may be unhealthy. The result is negative if a is greater than total.
func (a Amount) Spare(total int) int {
	if !a.percent {
		return total - a.value
	}
	return total - int(min((int64(a.value)*int64(total)+99)/100, math.MaxInt32))
}
