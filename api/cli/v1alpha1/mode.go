package v1alpha1

// modes are the texts of each mode: a sentence, and a cell of a table.
var modes = map[Mode]struct{ sentence, cell string }{
	ModeActing:    {"kubemend acts", "kubemend"},
	ModeObserving: {"Cluster API core acts, kubemend observes", "core (kubemend observes)"},
	ModeCore:      {"Cluster API core acts", "core"},
	ModeOther:     {"another controller acts", "other"},
	ModePaused:    {"paused", "paused"},
	ModeNone:      {"no controller acts", "none"},
	ModeUnknown:   {"it is not known which controller acts", "?"},
}

// Sentence says which controller acts on a check.
func (m Mode) Sentence() string { return modes[m].sentence }

// Controller says which controller acts on a check, as a cell of a table.
func (m Mode) Controller() string { return modes[m].cell }

// InCharge returns the controller that acts in place of kubemend.
func (m Mode) InCharge() string {
	if m == ModeOther {
		return "another controller"
	}
	return "Cluster API core"
}
