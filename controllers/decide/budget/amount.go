package budget

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Amount is a number of machines, or a percentage of all watched machines.
type Amount struct {
	value   int
	percent bool
}

// All is 100%, which limits nothing.
var All = Amount{value: 100, percent: true}

var errNegative = errors.New("must not be negative")

// ParseAmount parses "40%" or "2". Neither may be negative; more than 100% is allowed and means all.
func ParseAmount(s string) (Amount, error) {
	number, percent := strings.CutSuffix(s, "%")
	value, err := strconv.Atoi(number)
	switch {
	case tooLarge(number, err):
		value = math.MaxInt32
	case err != nil:
		return Amount{}, fmt.Errorf("must be a number such as 2 or a percentage such as 40%%, not %q", s)
	}
	if value < 0 {
		return Amount{}, errNegative
	}
	return Amount{value: min(value, math.MaxInt32), percent: percent}, nil
}

// Of returns how many of total machines a is, rounded down as in Cluster API's maxUnhealthy: 40% of 6 is 2.
func (a Amount) Of(total int) int {
	if !a.percent {
		return a.value
	}
	return int(min(int64(a.value)*int64(total)/100, math.MaxInt32))
}

// String returns a as it is written in a spec.
func (a Amount) String() string {
	if a.percent {
		return strconv.Itoa(a.value) + "%"
	}
	return strconv.Itoa(a.value)
}

// Range is how many machines may be unhealthy for remediation to start, including both ends.
type Range struct{ Min, Max int }

// ParseRange parses "[3-5]". An end that does not fit into a status field becomes the largest number that fits.
func ParseRange(s string) (Range, error) {
	inner, opened := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	from, to, cut := strings.Cut(inner, "-")
	low, lowErr := bound(from)
	high, highErr := bound(to)
	if !opened || !closed || !cut || lowErr != nil || highErr != nil {
		return Range{}, fmt.Errorf("must be a range such as [3-5], not %q", s)
	}
	if low > high {
		return Range{}, fmt.Errorf("%s is empty: its start is greater than its end", s)
	}
	return Range{Min: low, Max: high}, nil
}

func bound(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if tooLarge(s, err) {
		return math.MaxInt32, nil
	}
	return int(n), err
}

// tooLarge reports whether s is a number, and err, from parsing it, says that it does not fit. strconv stops at the digit that overflows,
// so s may contain other characters after it.
func tooLarge(s string, err error) bool {
	return errors.Is(err, strconv.ErrRange) && strings.Trim(s, "0123456789") == ""
}
