package explain

// Why a teardown waits for something that kubemend wrote, or removes it, as clauses.
const (
	CoreGoesOn = "Cluster API core goes on with it"
)

// CheckReleased is that a MachineHealthCheck was given back to Cluster API core. Template is the kind of its template if no controller acts on what is
// made from that any more; else it is empty.
func CheckReleased(template string) string {
	text := "kubemend is being removed: Cluster API core acts on this MachineHealthCheck from now on (docs/uninstall.md)"
	if template != "" {
		text += ". No controller acts on what is made from a " + template + " any more: have it name another template, or none"
	}
	return text
}
