package command

import (
	"fmt"
	"strings"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// unversioned is the version of a program that was built without one.
const unversioned = "dev"

// sayVersions tells, once, that managers which run are of another version than this program. It runs the controllers' code as it is in its own.
func (o *Options) sayVersions(managers []managerlease.Manager) {
	others := otherVersions(o.version, managers)
	if len(others) == 0 || o.saidVersions {
		return
	}
	o.saidVersions = true
	_, _ = fmt.Fprintf(o.ErrOut, "warning: this is version %s of %s, and answers as a manager of that version would; there is %s\n",
		o.version, o.Name, text.Below(strings.Join(others, ", and ")))
}

// otherVersions are the managers that run and are of another version than own. Of one without a version this is not known.
func otherVersions(own string, managers []managerlease.Manager) []string {
	var others []string
	for _, m := range managers {
		if a := m.Announcement; own != unversioned && m.Alive && a != nil && a.Version != own && a.Version != unversioned && a.Version != "" {
			others = append(others, fmt.Sprintf("version %s in namespace %s", a.Version, m.Namespace))
		}
	}
	return others
}
