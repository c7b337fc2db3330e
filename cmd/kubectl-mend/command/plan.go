package command

import "fmt"

// outcome is what becomes of an object that a person names.
type outcome int

const (
	changes outcome = iota
	staysSo         // it is so already
	refuses         // the change would do harm, or nothing
)

// plan is what becomes of an object, and why.
type plan struct {
	outcome outcome
	text    string
}

// line is what is printed of the plan for an object.
func (p plan) line(verb, named string) string {
	switch p.outcome {
	case refuses:
		verb = "cannot " + verb
	case staysSo:
		verb = "nothing to do for"
	case changes:
	}
	return fmt.Sprintf("%s %s: %s", verb, named, p.text)
}
