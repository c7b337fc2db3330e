module github.com/kubemend/kubemend/hack/dashboards

go 1.26.0
