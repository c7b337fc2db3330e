// Package flags validates the values of command-line flags.
package flags

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Positive returns an error if the value is not above zero.
func Positive[T cmp.Ordered](flag string, value T) error {
	if zero := *new(T); value <= zero {
		return fmt.Errorf("--%s %v: must be more than 0", flag, value)
	}
	return nil
}

// NotNegative returns an error if the duration is below zero.
func NotNegative(flag string, value time.Duration) error {
	if value < 0 {
		return fmt.Errorf("--%s %v: must not be negative", flag, value)
	}
	return nil
}

// Longer returns an error if the duration is not longer than the duration of another flag.
func Longer(flag string, value time.Duration, other string, than time.Duration) error {
	if value <= than {
		return fmt.Errorf("--%s %v: must be longer than --%s, which is %v", flag, value, other, than)
	}
	return nil
}

// Namespace returns an error if the value cannot be the name of a namespace.
func Namespace(flag, value string) error {
	if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
		return fmt.Errorf("--%s %q: must be the name of a namespace: %s", flag, value, wrong[0])
	}
	return nil
}

// NamespaceIfAny is Namespace, but accepts an empty value.
func NamespaceIfAny(flag, value string) error {
	if value == "" {
		return nil
	}
	return Namespace(flag, value)
}

// LabelValue returns an error if the value cannot be the value of a label.
func LabelValue(flag, value string) error {
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return fmt.Errorf("--%s %q: must be the value of a label: %s", flag, value, strings.Join(wrong, "; "))
	}
	return nil
}

// Address returns an error if a server cannot listen on the value. It accepts "" and "0", which switch a server of controller-runtime off.
func Address(flag, value string) error {
	if value == "" || value == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf("--%s %q: must be an address with a port, such as :8443 or localhost:6060", flag, value)
	}
	return nil
}

// enum is a flag that accepts only the allowed words.
type enum[T ~string] struct {
	value   *T
	allowed []T
}

// OneOf returns a flag for value that accepts only the allowed words. The first word is the default.
func OneOf[T ~string](value *T, allowed ...T) pflag.Value {
	*value = allowed[0]
	return enum[T]{value: value, allowed: allowed}
}

// Set implements pflag.Value.
func (e enum[T]) Set(s string) error {
	if !slices.Contains(e.allowed, T(s)) {
		words := make([]string, 0, len(e.allowed))
		for _, word := range e.allowed {
			words = append(words, string(word))
		}
		return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
	}
	*e.value = T(s)
	return nil
}

// String implements pflag.Value.
func (e enum[T]) String() string { return string(*e.value) }

// Type implements pflag.Value.
func (enum[T]) Type() string { return "string" }
