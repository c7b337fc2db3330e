package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

func TestWhatIsToBeExplainedIsSaidInOneWay(t *testing.T) {
	for line, tc := range map[string]struct {
		code int
		says string
	}{
		"explain":                       {Misused, "expected machine/NAME, node/NAME,"},
		"explain machine":               {Misused, `"machine" is a kind without a name: expected machine/NAME, node/NAME,`},
		"explain machine m -n ns":       {Done, ""},
		"explain Machines m m -n ns":    {Done, ""},
		"explain machine m x -n ns":     {Failed, "there is no Machine x in namespace ns"},
		"explain machine machine/m":     {Misused, `"machine/m": expected a name, as the kind is machine: write either KIND NAME or KIND/NAME`},
		"explain machine/a b":           {Misused, `"b": expected machine/NAME, node/NAME,`},
		"explain pod a":                 {Misused, `"pod/a": there is no kind "pod" here: expected machine/NAME`},
		"explain pod/a":                 {Misused, `"pod/a": there is no kind "pod" here: expected machine/NAME`},
		"explain machine/m -n ns":       {Done, ""},
		"explain machine/m -A":          {Done, ""},
		"explain machine/a -n ns":       {Failed, "there is no Machine a in namespace ns"},
		"explain machine/a -A":          {Failed, "there is no Machine a in any namespace"},
		"explain remediation/a -A":      {Failed, "there is no Metal3Remediation or HostRemediation a in any namespace"},
		"explain machine/m -n ns -o no": {Misused, `--output "no": expected custom-columns, custom-columns-file, go-template, go-template-file, json, jsonpath,`},
	} {
		t.Run(line, func(t *testing.T) {
			o, _, errOut := recorder(t, &snapshot.Scope{})
			if code := run(t, o, strings.Fields(line)...); code != tc.code || !strings.Contains(errOut.String(), tc.says) {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errOut)
			}
		})
	}
}

func TestAWidePageHasNoBrokenLines(t *testing.T) {
	t.Setenv("COLUMNS", "40")
	pages := map[string]string{}
	for _, args := range []string{"explain machine/m -n ns", "explain machine/m -n ns -o wide"} {
		o, out, errOut := recorder(t, &snapshot.Scope{})
		if code := run(t, o, strings.Fields(args)...); code != Done {
			t.Fatalf("%s: exit code %d: %s", args, code, errOut)
		}
		pages[args] = regexp.MustCompile(`Time: .*`).ReplaceAllString(out.String(), "Time: then") // two pages are of two moments
	}
	narrow, wide := pages["explain machine/m -n ns"], pages["explain machine/m -n ns -o wide"]
	if strings.Count(narrow, "\n") <= strings.Count(wide, "\n") {
		t.Errorf("wide is\n%s\nand narrow\n%s", wide, narrow)
	}
	if got, want := strings.Fields(wide), strings.Fields(narrow); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("wide says\n%s\nand narrow\n%s", wide, narrow)
	}
}

func TestWithoutAKubeconfigItIsSaidWhatToName(t *testing.T) {
	o, _, _ := recorder(t, &snapshot.Scope{})
	if _, err := o.config(); err == nil || !strings.Contains(err.Error(), "no kubeconfig was found, or it names no cluster") {
		t.Errorf("an empty one: %v", err)
	}
	o.Config.APIServer = ptr.To("https://203.0.113.1")
	if config, err := o.config(); err != nil || config.Host != "https://203.0.113.1" {
		t.Errorf("with --server: %v, %v", config, err)
	}
	o.Config.APIServer, o.Config.KubeConfig = nil, ptr.To(filepath.Join(t.TempDir(), "kubeconfig"))
	if _, err := o.config(); err == nil || !strings.HasPrefix(err.Error(), "read the kubeconfig: ") {
		t.Errorf("one that is not there: %v", err)
	}
	const whole = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "http://localhost:8080"}}]}`
	if err := os.WriteFile(*o.Config.KubeConfig, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if config, err := o.config(); err != nil || config.Host != "http://localhost:8080" {
		t.Errorf("one that names the server of its own machine: %v, %v", config, err)
	}
}
