package explain

import "fmt"

// Missing is the error that an object does not exist.
type Missing string

// Error says what does not exist.
func (m Missing) Error() string { return string(m) }

// NoSuch is the error that there is no object of a kind and a name in a namespace.
func NoSuch(kind, namespace, name string) Missing {
	return Missing(fmt.Sprintf("there is no %s %s in namespace %s", kind, name, namespace))
}
