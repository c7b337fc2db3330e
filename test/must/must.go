// Package must has assertions for tests. It imports no package of the project, so every layer can use it.
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

// Do ends the test if a step that is not under test has failed.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Is fails the test unless got == want. what is a format and its arguments for the beginning of the message.
func Is[V comparable](t T, want, got V, what ...any) {
	t.Helper()
	if got == want {
		return
	}
	t.Errorf("%s "+verb[V]()+", want "+verb[V](), text("got", what), got, want)
}

// List fails the test unless both lists have the same elements in the same order. An empty list equals nil.
func List[V comparable](t T, want, got []V, what ...any) {
	t.Helper()
	if !slices.Equal(want, got) {
		t.Errorf("%s "+verb[V]()+", want "+verb[V](), text("got", what), got, want)
	}
}

// Equal fails the test unless got equals want field by field.
func Equal(t T, want, got any, what ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", text("it differs", what), diff)
	}
}

// verb returns the format of a value: strings are quoted.
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
