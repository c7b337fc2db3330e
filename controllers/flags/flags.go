// Package flags checks the values of command-line flags. It offers the checks that the options of several controllers share.
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

// Positive refuses a value that is not above zero.
func Positive[T cmp.Ordered](flag string, value T) error {
	if zero := *new(T); value <= zero {
		return fmt.Errorf("--%s %v: must be more than 0", flag, value)
	}
	return nil
}

// NotNegative refuses a duration below zero.
func NotNegative(flag string, value time.Duration) error {
	if value < 0 {
		return fmt.Errorf("--%s %v: must not be negative", flag, value)
	}
	return nil
}

// Longer refuses a duration that is not longer than that of another flag.
func Longer(flag string, value time.Duration, other string, than time.Duration) error {
	if value <= than {
		return fmt.Errorf("--%s %v: must be longer than --%s, which is %v", flag, value, other, than)
	}
	return nil
}

// Namespace refuses what cannot be the name of a namespace.
func Namespace(flag, value string) error {
	if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
		return fmt.Errorf("--%s %q: must be the name of a namespace: %s", flag, value, wrong[0])
	}
	return nil
}

// NamespaceIfAny refuses what is neither empty nor the name of a namespace.
func NamespaceIfAny(flag, value string) error {
	if value == "" {
		return nil
	}
	return Namespace(flag, value)
}

// LabelValue refuses what cannot be the value of a label.
func LabelValue(flag, value string) error {
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return fmt.Errorf("--%s %q: must be the value of a label: %s", flag, value, strings.Join(wrong, "; "))
	}
	return nil
}

// Address refuses what a server cannot listen on. Empty and 0, with which controller-runtime switches a server off, pass.
func Address(flag, value string) error {
	if value == "" || value == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf("--%s %q: must be an address with a port, such as :8443 or localhost:6060", flag, value)
	}
	return nil
}

// enum is a flag whose value is one of a few words.
type enum[T ~string] struct {
	value   *T
	allowed []T
}

// OneOf returns a flag that sets value to one of the allowed words and refuses every other one. The first word is the default.
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
