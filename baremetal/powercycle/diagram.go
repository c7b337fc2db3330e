package powercycle

import (
	"fmt"
	"slices"
	"strings"
)

// Diagram renders the table as a Mermaid state diagram. Rows that neither act nor lead elsewhere are left out, and so are those that
// every state has, which are drawn once, from the state "any".
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> Pending\n    any: any state above that is not an end\n")
	for _, s := range order {
		for _, r := range pauses(s) {
			if r.next != s {
				arrow(&b, s, r)
			}
		}
		for _, r := range table[s] {
			arrow(&b, s, r)
		}
	}
	for _, r := range slices.Concat(pauses("any"), endings) {
		arrow(&b, "any", r)
	}
	for _, s := range order {
		if s.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}

// Steps are all steps that the table has, each with the state in which it is taken: for those who have a sentence for each.
func Steps() []Step {
	var all []Step
	for _, s := range order {
		for _, r := range rowsOf[s] {
			do := r.do
			if do == waitForPerson {
				do = AskPerson
			}
			all = append(all, Step{Do: do, From: s, Next: r.next, Reason: r.reason, Detail: r.detail()})
		}
	}
	return all
}

func arrow(b *strings.Builder, from State, r row) {
	switch {
	case (r.do == Wait || r.do == waitForPerson) && r.next == from:
	case r.do == Advance:
		fmt.Fprintf(b, "    %s --> %s: %s\n", from, r.next, r.when.name)
	default:
		fmt.Fprintf(b, "    %s --> %s: %s / %s\n", from, r.next, r.when.name, r.do)
	}
}
