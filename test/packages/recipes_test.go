package packages

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"
)

// providerSpec is what Cluster API Operator's AddonProvider and Rancher Turtles' CAPIProvider have in common, as far as the recipes use it.
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

// The operators that install providers put into the release's Deployment what these manifests say: a container, a flag, a
// file or a version that is not there shows only when somebody tries.
func TestTheManifestsForOperatorsNameWhatAReleaseHas(t *testing.T) {
	components, seen := provider(t), map[string]int{}
	deployment := as[appsv1.Deployment](t, ofKind(components, "Deployment")[0])
	flags := string(read(t, "docs/reference/flags.md"))
	metadata := clusterctlv1.Metadata{}
	if err := yaml.UnmarshalStrict(read(t, "metadata.yaml"), &metadata); err != nil {
		t.Fatal(err)
	}
	const page = "cluster-api-operator.md"
	for _, block := range shownYAML.FindAllSubmatch(read(t, filepath.Join("docs", "recipes", page)), -1) {
		for _, o := range objects(t, block[1]) {
			seen[o.GetKind()]++
			if o.GetKind() == "Namespace" {
				continue
			}
			content, err := yaml.Marshal(o.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
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
