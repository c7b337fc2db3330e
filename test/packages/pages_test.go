package packages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"
)

// providerSpec is the part of Cluster API Operator's AddonProvider and Rancher Turtles' CAPIProvider that the recipes use.
type providerSpec struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Version     string `json:"version"`
	FetchConfig struct {
		URL      string `json:"url"`
		Selector *struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
	} `json:"fetchConfig"`
	Deployment struct {
		Containers []struct {
			Name     string            `json:"name"`
			ImageURL string            `json:"imageUrl"`
			Args     map[string]string `json:"args"`
		} `json:"containers"`
	} `json:"deployment"`
}

var shownYAML = regexp.MustCompile("(?s)```yaml\\n(.*?\\n)```\\n")

// These operators change the release's Deployment as the manifests say. A container, flag, file or version that does not exist would be
// noticed only when a user tries the manifest.
func TestTheManifestsForOperatorsNameWhatAReleaseHas(t *testing.T) {
	components, seen := provider(t), map[string]int{}
	deployment := as[appsv1.Deployment](t, ofKind(components, "Deployment")[0])
	flags := string(read(t, "docs/reference/flags.md"))
	metadata := clusterctlv1.Metadata{}
	must.Do(t, yaml.UnmarshalStrict(read(t, "metadata.yaml"), &metadata))
	const page = "cluster-api-operator.md"
	for _, block := range shownYAML.FindAllSubmatch(read(t, filepath.Join("docs", "recipes", page)), -1) {
		for _, o := range objects(t, block[1]) {
			seen[o.GetKind()]++
			if o.GetKind() == "Namespace" {
				continue
			}
			content, err := yaml.Marshal(o.Object["spec"])
			must.Do(t, err)
			spec := providerSpec{}
			if err := yaml.UnmarshalStrict(content, &spec); err != nil {
				t.Errorf("%s: a field that no recipe needs, or that is misspelled: %v", page, err)
			}
			if o.GetName() != "kubemend" || o.GetNamespace() != deployment.Namespace {
				t.Errorf("%s: %s/%s, want kubemend in %s", page, o.GetNamespace(), o.GetName(), deployment.Namespace)
			}
			fits(t, page, spec, metadata, deployment, flags)
		}
	}
	if seen["AddonProvider"] < 2 || seen["CAPIProvider"] < 1 {
		t.Errorf("the pages show %v", seen)
	}
}

func fits(t *testing.T, page string, spec providerSpec, metadata clusterctlv1.Metadata, deployment *appsv1.Deployment, flags string) {
	t.Helper()
	v, err := version.ParseSemantic(spec.Version)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if !slices.ContainsFunc(metadata.ReleaseSeries, func(s clusterctlv1.ReleaseSeries) bool {
		return s.Major == int32(v.Major()) && s.Minor == int32(v.Minor())
	}) {
		t.Errorf("%s: metadata.yaml has no series of %s", page, spec.Version)
	}
	url, selects := spec.FetchConfig.URL, spec.FetchConfig.Selector != nil
	if (url == "") != selects || url != "" && !strings.HasSuffix(url, "/kubemend/kubemend/releases/latest/addon-components.yaml") {
		t.Errorf("%s: it fetches from %q, by a selector: %t", page, url, selects)
	}
	for _, c := range spec.Deployment.Containers {
		if !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(is corev1.Container) bool { return is.Name == c.Name }) {
			t.Errorf("%s: the Deployment has no container %s", page, c.Name)
		}
		for flag := range c.Args {
			if !strings.Contains(flags, "| `"+flag+"` |") {
				t.Errorf("%s: the manager has no flag %s", page, flag)
			}
		}
	}
}

// The example replaces the NetworkPolicy that ships, and restricts egress as well. The manager cannot use a port that the example omits,
// and a rule without peers is open to everybody.
func TestTheExampleOfANetworkPolicyIsTheShippedOneWithPeers(t *testing.T) {
	all := standalone(t)
	brought := as[networkingv1.NetworkPolicy](t, ofKind(all, "NetworkPolicy")[0])
	_, c := manager(t, all)
	example := as[networkingv1.NetworkPolicy](t, &objects(t, read(t, "docs/examples/network-policy.yaml"))[0])
	want := brought.DeepCopy().Spec
	want.Ingress, want.Egress = example.Spec.Ingress, example.Spec.Egress
	want.PolicyTypes = append(want.PolicyTypes, networkingv1.PolicyTypeEgress)
	if diff := cmp.Diff(want, example.Spec); diff != "" || example.Namespace != brought.Namespace {
		t.Errorf("it is for namespace %q (-want +got):\n%s", example.Namespace, diff)
	}
	var declared []string
	for _, p := range c.Ports {
		declared = append(declared, p.Name)
	}
	slices.Sort(declared)
	if open := ports(example.Spec.Ingress); !slices.Equal(open, ports(brought.Spec.Ingress)) || !slices.Equal(open, declared) {
		t.Errorf("it opens %v, the policy of the manager %v, and the manager has %v", open, ports(brought.Spec.Ingress), declared)
	}
	for i, rule := range example.Spec.Ingress {
		if len(rule.From) == 0 {
			t.Errorf("ingress %d is open to all", i)
		}
	}
	var out []int
	for i, rule := range example.Spec.Egress {
		if len(rule.To) == 0 || len(rule.Ports) == 0 {
			t.Errorf("egress %d leads everywhere", i)
		}
		for _, p := range rule.Ports {
			out = append(out, p.Port.IntValue()) // 0 for the name of a port, which only pods have, and the peers are not pods
		}
	}
	if want := []int{6443, 6443, 53, 53}; !slices.Equal(out, want) {
		t.Errorf("it leads to ports %v, want %v: the API servers here and there, and names by UDP and TCP", out, want)
	}
}

// ports returns the open ports, sorted.
func ports(rules []networkingv1.NetworkPolicyIngressRule) []string {
	var open []string
	for _, rule := range rules {
		for _, p := range rule.Ports {
			open = append(open, p.Port.String())
		}
	}
	slices.Sort(open)
	return open
}

// The sizing page has to give the default memory request, with an example that fits into it.
func TestTheSizingPageSaysForWhichFleetTheDefaultIs(t *testing.T) {
	_, c := manager(t, standalone(t))
	page, request := strings.ReplaceAll(string(read(t, "docs/sizing.md")), "\n", " "), c.Resources.Requests.Memory()
	example := regexp.MustCompile(`need [^=]*= (\d+) MiB, which the default request of (\w+) covers`).FindStringSubmatch(page)
	if len(example) < 3 || example[2] != request.String() {
		t.Fatalf("the manager requests %s, and the example of the page is %q", request, example)
	}
	if needs := resource.MustParse(example[1] + "Mi"); needs.Cmp(*request) > 0 {
		t.Errorf("the example needs %s", &needs)
	}
}

// kubectl apply deletes nothing, so bindings of the wider package remain.
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

// named replaces a suffix in the names and namespaces of objects.
func named(all []object, was, is string) []object {
	for i := range all {
		all[i].SetName(strings.Replace(all[i].GetName(), was, is, 1))
		all[i].SetNamespace(strings.Replace(all[i].GetNamespace(), was, is, 1))
	}
	return all
}

// imageName matches the manager's image with its registry. Names in registry.example.org are examples of mirrors.
var imageName = regexp.MustCompile(`\b(?:[a-z0-9-]+\.)+[a-z]+(?::\d+)?/[a-z]+/kubemend\b`)

// If a manifest names an image that the release workflow does not push, no pod can pull it.
func TestEveryFileNamesTheImageThatIsPushed(t *testing.T) {
	const pushed = "ghcr.io/kubemend/kubemend"
	workflow, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "release.yml"))
	must.Do(t, err)
	if !strings.Contains(string(workflow), "IMAGE: "+pushed+" ") {
		t.Errorf("the release workflow does not push %s", pushed)
	}
	named := 0
	for _, place := range []string{"Makefile", "README.md", "tilt-provider.json", "config", "charts", "docs", "templates"} {
		err := filepath.WalkDir(filepath.Join(root, place), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			for _, name := range imageName.FindAllString(string(content), -1) {
				switch {
				case name == pushed:
					named++
				case !strings.HasPrefix(name, "registry.example.org/") && !strings.Contains(name, "github"):
					t.Errorf("%s names %s", path, name)
				}
			}
			return err
		})
		must.Do(t, err)
	}
	if named < 10 {
		t.Errorf("only %d places name the image", named)
	}
}
