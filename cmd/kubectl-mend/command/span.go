package command

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
)

// span is a duration that a flag takes as Go spells it, such as 1h30m, or in days and weeks, such as 14d.
type span time.Duration

// String implements pflag.Value.
func (s *span) String() string {
	if d := time.Duration(*s); d < 0 || d%(24*time.Hour) != 0 || d == 0 {
		return d.String()
	}
	return fmt.Sprintf("%dd", time.Duration(*s)/(24*time.Hour))
}

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		days, other := model.ParseDuration(text)
		if other != nil {
			return fmt.Errorf("%q is no duration, such as 90m, 24h or 14d", text)
		}
		d = time.Duration(days)
	}
	*s = span(d)
	return nil
}

// Type implements pflag.Value.
func (*span) Type() string { return "duration" }
