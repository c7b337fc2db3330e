package health

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const root = "../../.."

// The health statuses of Argo CD.
const (
	healthy     = "Healthy"
	progressing = "Progressing"
	degraded    = "Degraded"
	suspended   = "Suspended"
)

// prefix is the prefix of the keys in argocd-cm whose values are scripts.
const prefix = "resource.customizations.health."

// withComponent is a kustomization with Argo CD's own ConfigMap, a setting of the user in it, and the component.
const withComponent = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: argocd
resources: [argocd-cm.yaml]
components: [../config/argocd]
`

const argoConfigMap = `apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
  labels: {app.kubernetes.io/part-of: argocd}
data:
  application.resourceTrackingMethod: annotation
`

// customizations returns the data of argocd-cm after kustomize has added the component.
func customizations(t *testing.T) map[string]string {
	t.Helper()
	disk, memory := filesys.MakeFsOnDisk(), filesys.MakeFsInMemory()
	files, err := filepath.Glob(filepath.Join(root, "config", "argocd", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no component: %v", err)
	}
	content := map[string]string{"own/kustomization.yaml": withComponent, "own/argocd-cm.yaml": argoConfigMap}
	for _, file := range files {
		text, err := disk.ReadFile(file)
		must.Do(t, err)
		content["config/argocd/"+filepath.Base(file)] = string(text)
	}
	for name, text := range content {
		must.Do(t, memory.WriteFile("/"+name, []byte(text)))
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(memory, "/own")
	must.Do(t, err)
	if len(built.Resources()) != 1 {
		t.Fatalf("there are %d objects, want argocd-cm alone", len(built.Resources()))
	}
	return built.Resources()[0].GetDataMap()
}

func TestTheComponentAddsToArgoCDsConfigMap(t *testing.T) {
	data := customizations(t)
	if data["application.resourceTrackingMethod"] != "annotation" {
		t.Error("the user's own setting is gone")
	}
	for _, kind := range []string{
		"cluster.x-k8s.io_MachineHealthCheck", "kubemend.io_HostRemediation", "kubemend.io_HostRemediationTemplate",
		"infrastructure.cluster.x-k8s.io_Metal3Remediation", "infrastructure.cluster.x-k8s.io_Metal3RemediationTemplate",
		"remediation.medik8s.io_NodeHealthCheck",
	} {
		if data[prefix+kind] == "" {
			t.Errorf("there is no script for %s", kind)
		}
		delete(data, prefix+kind)
	}
	if len(data) != 1 {
		t.Errorf("what is there besides: %v", data)
	}
	scripts, err := filepath.Glob(filepath.Join(root, "config", "argocd", "*.lua"))
	must.Do(t, err)
	listed, err := os.ReadFile(filepath.Join(root, "config", "argocd", "kustomization.yaml"))
	must.Do(t, err)
	for _, script := range scripts {
		if !strings.Contains(string(listed), "="+filepath.Base(script)+"\n") {
			t.Errorf("%s is of no use", script)
		}
	}
}

// argo runs a script like Argo CD: with these libraries only, a deadline of one second, and the object as the global obj (Argo CD v3,
// util/lua/lua.go).
func argo(t *testing.T, script string, o *unstructured.Unstructured) (status, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	libraries := map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable}
	for name, open := range libraries {
		must.Do(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	l.SetContext(ctx)
	l.SetGlobal("obj", luaOf(l, o.Object))
	must.Do(t, l.DoString(script))
	is, table := l.Get(-1).(*lua.LTable)
	if !table {
		t.Fatalf("it returns a %s", l.Get(-1).Type())
	}
	return field(t, is, "status"), field(t, is, "message")
}

func field(t *testing.T, table *lua.LTable, name string) string {
	t.Helper()
	text, is := table.RawGetString(name).(lua.LString)
	if !is {
		t.Fatalf("its %s is a %s", name, table.RawGetString(name).Type())
	}
	return string(text)
}

func luaOf(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case nil:
		return lua.LNil
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		array := l.CreateTable(len(v), 0)
		for _, item := range v {
			array.Append(luaOf(l, item))
		}
		return array
	case map[string]any:
		table := l.CreateTable(0, len(v))
		for key, item := range v {
			table.RawSetString(key, luaOf(l, item))
		}
		return table
	}
	panic(fmt.Sprintf("no JSON: %T", value))
}
