package packages

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kubectl apply deletes nothing: what was bound stays bound.
func TestTheUpgradePageNamesBindingsThatANarrowerPackageLeaves(t *testing.T) {
	_, page, _ := strings.Cut(string(read(t, "docs/upgrade.md")), "### Rights that stay")
	page, _, _ = strings.Cut(page, "\n## ")
	for name, row := range map[string]struct{ from, to []object }{
		"without NodeHealthChecks":          {standalone(t), beside(t)},
		"to one namespace":                  {beside(t), example(t, "one-namespace")},
		"from a shard by label to a place":  {named(example(t, "shard-by-label"), "-canary", "-east"), example(t, "shard")},
		"from all namespaces to one (Helm)": {rendered(t, ""), rendered(t, "flags: {namespace: metal}")},
	} {
		t.Run(name, func(t *testing.T) {
			stays := map[string]bool{}
			for _, o := range slices.Concat(ofKind(row.to, "ClusterRoleBinding"), ofKind(row.to, "RoleBinding")) {
				stays[o.GetNamespace()+" "+id(o)] = true
			}
			left := 0
			for _, o := range slices.Concat(ofKind(row.from, "ClusterRoleBinding"), ofKind(row.from, "RoleBinding")) {
				if stays[o.GetNamespace()+" "+id(o)] {
					continue
				}
				left++
				words := regexp.MustCompile("[`; ]" + regexp.QuoteMeta(o.GetName()) + "[`; ]")
				if !words.MatchString(page) || o.GetNamespace() != "" && !strings.Contains(page, o.GetName()+" -n "+o.GetNamespace()) {
					t.Errorf("%s stays bound in %q, and the page does not say so", id(o), o.GetNamespace())
				}
			}
			if left == 0 {
				t.Error("nothing is left, so that the page says too much")
			}
		})
	}
}

// named gives objects another suffix, and namespaces that end so.
func named(all []object, was, is string) []object {
	for i := range all {
		all[i].SetName(strings.Replace(all[i].GetName(), was, is, 1))
		all[i].SetNamespace(strings.Replace(all[i].GetNamespace(), was, is, 1))
	}
	return all
}
