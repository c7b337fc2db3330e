package schemas

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/test/crd"
)

const definitions = "../../config/crd/bases"

func TestRequestsWithoutWebhooks(t *testing.T) {
	ask(t, served(t, Serve), slices.Concat(Remediations(), NodeHealthChecks(), DocumentedChecks()))
}

func TestRequestsWithTheWebhookThatCompletesTemplates(t *testing.T) {
	ask(t, served(t, ServeCompleted), slices.Concat(CompletedTemplates(), DocumentedTemplates()))
}

func served(t *testing.T, serve func(string) (*crd.Server, error)) *crd.Server {
	t.Helper()
	server, err := serve(definitions)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func ask(t *testing.T, server *crd.Server, rows []Row) {
	t.Helper()
	names := map[string]bool{}
	for _, row := range rows {
		if names[row.Name] {
			t.Errorf("two rows are named %q", row.Name)
		}
		names[row.Name] = true
		t.Run(row.Name, func(t *testing.T) {
			create := server.Create
			if row.Strict {
				create = server.CreateStrictly
			}
			stored, err := create(t.Context(), row.Object)
			if wrong := row.Check(stored, err); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestConversions(t *testing.T) {
	server := served(t, ServeCompleted)
	for _, row := range Conversions {
		for _, kinds := range [][2]Kind{{Metal3V1Beta1, Metal3V1Beta2}, {Metal3V1Beta1.Template(), Metal3V1Beta2.Template()}} {
			t.Run(kinds[0].Kind+": "+row.Name, func(t *testing.T) {
				stored, err := server.Create(t.Context(), kinds[0].Object("a", row.Old))
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range []string{row.Back, row.New} {
					o, err := server.As(stored, kinds[i].APIVersion)
					if wrong := (Row{Becomes: want}).Check(o, err); wrong != "" {
						t.Errorf("as %v: it %s", kinds[i], wrong)
					}
				}
			})
		}
	}
}

func TestTheWholeStatusIsThereInBothVersions(t *testing.T) {
	server := served(t, ServeCompleted)
	status := JSON(`{"phase":"Deleting machine","retryCount":2,"lastRemediated":"2026-01-01T12:00:00Z","message":"Handed to its owner",
		"conditions":[{"type":"PoweredOff","status":"False","reason":"TimedOut","message":"","lastTransitionTime":"2026-01-01T12:00:00Z"}]}`)
	o := Metal3V1Beta2.Object("status", Complete)
	o.Object["status"] = status
	for _, k := range []Kind{Metal3V1Beta1, Metal3V1Beta2} {
		stored, err := server.As(o, k.APIVersion)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedMap(stored.Object, "status"); marshal(got) != marshal(status) {
			t.Errorf("%v has the status\n%s\nand not\n%s", k, marshal(got), marshal(status))
		}
	}
}

// update is a change of an object that is stored, be it valid or not.
type update struct {
	name    string
	kind    Kind
	was, is string
	refused string
}

// older is a spec that today's rules refuse, as an older definition accepted it.
const older = `"unhealthyConditions":[],"minHealthy":1,"maxUnhealthy":1,"escalatingRemediations":[
	{"remediationTemplate":{"apiVersion":"test.io/v1","kind":"Reboot","namespace":"default","name":"a"},"order":1,"timeout":"1s"},
	{"remediationTemplate":{"apiVersion":"test.io/v1","kind":"Reboot","namespace":"default","name":"a"},"order":1,"timeout":"1s"}]`

func TestUpdates(t *testing.T) {
	server := served(t, Serve)
	for _, row := range []update{
		{"a change is refused like a new object", Metal3V1Beta2, Complete, `{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":5}}`, tooShort[0]},
		{"a change is refused like a new object", Host, Complete, `{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":5}}`, tooShort[0]},
		{
			"seed 2.4: a change is refused like a new object", NodeHealthCheck, specWith(oneTemplate, `"minHealthy":1`),
			specWith(oneTemplate, `"minHealthy":1,"maxUnhealthy":1`),
			"minHealthy and maxUnhealthy cannot be specified at the same time",
		},
		{"a label is accepted on what was stored before it was refused", NodeHealthCheck, specWith(older), specWith(older), ""},
		{"a label is accepted on a spec that was stored empty", NodeHealthCheck, ``, ``, ""},
		{
			"what concerns several fields is refused as soon as the spec changes", NodeHealthCheck, specWith(older), specWith(older, `"pauseRequests":["for the test"]`),
			"minHealthy and maxUnhealthy cannot",
		},
	} {
		t.Run(row.kind.String()+": "+row.name, func(t *testing.T) {
			was, is := row.kind.Object("a", row.was), row.kind.Object("a", row.is)
			is.SetLabels(map[string]string{"a": "b"})
			stored, err := server.Update(t.Context(), was, is)
			if wrong := (Row{Refused: row.refused}).Check(stored, err); wrong != "" {
				t.Error(wrong)
			}
		})
	}
	t.Run("what was stored before it was refused cannot be created", func(t *testing.T) {
		for _, spec := range []string{specWith(older), ``} {
			if _, err := server.Create(t.Context(), NodeHealthCheck.Object("a", spec)); err == nil {
				t.Error("is accepted: " + spec)
			}
		}
	})
}
