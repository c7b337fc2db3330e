// Package must is what tests say all the time: that what is no part of them succeeds, and that what they get is what they want. It imports no
// package of the project, so that the tests of decisions may import it.
package must

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/go-cmp/cmp"
)

// T is a test of the standard library, or of rapid.
type T interface {
	Helper()
	Errorf(format string, of ...any)
	Fatal(of ...any)
}

// Do ends the test if something has failed that is no part of it.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Is fails the test unless got is want, by ==. What says of what, as a format and its arguments, and stands before both.
func Is[V comparable](t T, want, got V, what ...any) {
	t.Helper()
	if got == want {
		return
	}
	t.Errorf("%s "+verb[V]()+", want "+verb[V](), text("got", what), got, want)
}

// List fails the test unless got has what want has, in that order; none is nil, too.
func List[V comparable](t T, want, got []V, what ...any) {
	t.Helper()
	if !slices.Equal(want, got) {
		t.Errorf("%s "+verb[V]()+", want "+verb[V](), text("got", what), got, want)
	}
}

// Equal fails the test unless got is want, field by field.
func Equal(t T, want, got any, what ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", text("it differs", what), diff)
	}
}

// verb is how a value is printed: strings in quotes.
func verb[V any]() string {
	if reflect.TypeFor[V]().Kind() == reflect.String {
		return "%q"
	}
	return "%+v"
}

func text(otherwise string, what []any) string {
	if len(what) == 0 {
		return otherwise
	}
	return fmt.Sprintf(fmt.Sprint(what[0]), what[1:]...)
}
