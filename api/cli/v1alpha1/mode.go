package v1alpha1

import "strings"

// Sentence is which controller acts on a check.
func (m Mode) Sentence() string {
	switch m {
	case ModeActing:
		return "kubemend acts"
	case ModeObserving:
		return "Cluster API core acts, kubemend observes"
	case ModeCore:
		return "Cluster API core acts"
	case ModeOther:
		return "another controller acts"
	case ModePaused:
		return "paused"
	case ModeUnknown:
		return "it is not known which controller acts"
	case ModeNone:
	}
	return "no controller acts"
}

// Controller is which controller acts on a check, as a cell of a table.
func (m Mode) Controller() string {
	switch m {
	case ModeActing:
		return "kubemend"
	case ModeObserving:
		return "core (kubemend observes)"
	case ModeCore:
		return "core"
	case ModeOther, ModePaused, ModeNone:
		return strings.ToLower(string(m))
	case ModeUnknown:
	}
	return "?"
}

// InCharge is the controller that acts in place of kubemend.
func (m Mode) InCharge() string {
	if m == ModeOther {
		return "another controller"
	}
	return "Cluster API core"
}
